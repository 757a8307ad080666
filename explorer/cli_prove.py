"""``python main.py prove``: did every toggle really run?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping

from explorer.cli_config import config_from
from explorer.cli_screen import columns
from explorer.engine.proving import profile_of
from explorer.messages import Problem
from explorer.optimizations.proofs import proof_of
from explorer.results.proof import Profile, Proof, short_name

KERNELS = 10
"""The longest-running kernels that are listed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument("--json", action="store_true", help="print the whole profile and the proofs as JSON")


def run(args: argparse.Namespace) -> int:
    """Profile and judge; return the exit status: 0 all proven, 1 a toggle is not (or it failed), 2 wrong request.

    Raises:
        ValueError: settings that are not allowed.
    """
    config = config_from(args)
    try:
        profile = profile_of(config, download=args.download, report=_report)
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    if isinstance(profile, Problem):
        sys.stderr.write(f"error: {profile}\n")
        return 2 if profile.bad_request else 1
    proofs = proof_of(config, profile)
    if args.json:
        found = dataclasses.asdict(profile) | {"busy_ms": _or_none(profile.busy_ms)}
        found["busy_share"] = _or_none(profile.busy_share)
        found["recomputed_blocks"] = profile.recomputed_blocks
        by_toggle = {name: dataclasses.asdict(proof) for name, proof in proofs.items()}
        text = json.dumps({"config": config.to_dict(), "proofs": by_toggle, "profile": found}, indent=2)
    else:
        text = in_words(profile, proofs)
    sys.stdout.write(text + "\n")
    return 0 if all(proof.shown for proof in proofs.values()) else 1


def in_words(profile: Profile, proofs: Mapping[str, Proof]) -> str:
    """A line a toggle, then what the device did: launches, share of time busy, the longest-running kernels."""
    rows = [("toggle", "level", "shown", "evidence")]
    rows += [(name, proof.level, "yes" if proof.shown else "NO", proof.evidence) for name, proof in proofs.items()]
    lines = columns(rows)
    what = "1 training step" if profile.workload == "train" else f"a prefill and {profile.steps - 1} tokens"
    lines += ["", f"{what}: {profile.step_ms:.2f} ms without the profiler"]
    if profile.launches is not None:
        lines[-1] += f", {profile.launches} launches, GPU busy {profile.busy_share:.0%} of the time"
    if profile.triton_kernels:
        lines.append(f"Triton kernels: {', '.join(profile.triton_kernels)}")
    lines += ["", f"{'ms':>10}  {'count':>6}  {'kernel' if profile.device == 'cuda' else 'operator'}"]
    lines += [f"{k.total_us / 1e3:>10.3f}  {k.count:>6}  {short_name(k.name)}" for k in profile.kernels[:KERNELS]]
    return "\n".join(lines)


def _report(activity: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{activity}")


def _or_none(value: float) -> float | None:
    """JSON knows no NaN."""
    return None if math.isnan(value) else value
