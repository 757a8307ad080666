"""What held a run up, in words on the terminal and as JSON."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from explorer.engine.proving import profile_of
from explorer.messages import Problem
from explorer.optimizations.cures import Cure, cures
from explorer.results.diagnosis import CURES, Diagnosis, diagnosis
from explorer.results.log import RunRecord
from explorer.results.proof import Profile

NORMS = 8
"""The last gradient norms before a loss that is no number."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a run's diagnosis may take beside what the run showed."""
    parser.add_argument(
        "--diagnose",
        action="store_true",
        help="profile one step of the last setting afterwards: how busy the device was, and with what (some seconds)",
    )
    parser.add_argument(
        "--memory-summary",
        action="store_true",
        help="after the last step say what the process holds: torch.cuda.memory_summary, and the largest tensors",
    )


def diagnosed(record: RunRecord, *, profiled: bool, download: bool) -> tuple[Diagnosis, tuple[Cure, ...]]:
    """What the last segment of ``record`` showed, and what to try next. ``profiled``: take a profile first."""
    profile: Profile | None = None
    if profiled and record.segments:
        found = profile_of(record.segments[-1].config, download=download)
        if isinstance(found, Problem):
            sys.stderr.write(f"no profile: {found}\n")
        else:
            profile = found
    seen = diagnosis(record, profile)
    if record.environment is None or not record.segments:
        return seen, ()
    config = record.segments[-1].config
    return seen, cures(seen.causes, config, record.environment.device(config.device))


def in_words(found: Diagnosis, next_ones: tuple[Cure, ...]) -> list[str]:
    """A line a finding, with what helps; then what is not known and what to flip."""
    lines = []
    for finding in found.findings:
        cure = CURES[finding.cause]
        lines.append(f"diagnosis: {finding.text}{'. ' + cure if cure else ''}")
    if found.norms:
        lines.append(f"gradient norms until then: {', '.join(f'{norm:.3g}' for _, norm in found.norms[-NORMS:])}")
    lines += [f"not known: {words}" for words in found.unknown]
    if next_ones:
        flips = ", ".join(f"--set {cure.toggle}={cure.level}" for cure in next_ones)
        lines.append(f"try next, one at a time: {flips}")
    return lines


def as_json(found: Diagnosis, next_ones: tuple[Cure, ...]) -> dict[str, Any]:
    """Plain JSON types; norms that are no numbers are null."""
    return {
        "findings": [
            {"cause": finding.cause, "text": finding.text, "cure": CURES[finding.cause]} for finding in found.findings
        ],
        "unknown": list(found.unknown),
        "gradient_norms": [[step, norm if math.isfinite(norm) else None] for step, norm in found.norms],
        "try_next": [{"toggle": cure.toggle, "level": cure.level} for cure in next_ones],
    }
