"""``python main.py profile``: where does the time of a step go?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from explorer.cli_config import config_from
from explorer.cli_screen import columns
from explorer.config import RunConfig
from explorer.engine.step_profiling import steps_profile_of
from explorer.experiments.command_line import nsys_line
from explorer.messages import Problem
from explorer.results.atomic import check_target, replaced
from explorer.results.export import text_writer, write_rows
from explorer.results.proof import short_name
from explorer.results.scratch import Scratch
from explorer.results.step_profile import MOST_STEPS, StepProfile, kept_file, profile_rows
from explorer.results.step_profile_words import ONE_THING, adds_up, dominant

KERNELS = 15
"""The longest-running kernels that are listed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument(
        "--steps", type=int, default=3, help="steps, or tokens after the prefill, that are profiled (default 3)"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the Chrome trace: .json, or smaller .json.gz")
    parser.add_argument(
        "--memory", type=Path, metavar="FILE", help="write what was allocated and released, for pytorch.org/memory_viz"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a row a part, a kind and a kernel")
    parser.add_argument("--json", action="store_true", help="print the whole profile as JSON")


def run(args: argparse.Namespace) -> int:
    """Profile; return the exit status: 0, 1 it failed, 2 wrong request.

    Raises:
        ValueError: settings that are not allowed, or a file that cannot be written.
        RuntimeError: the disk is full or fails.
    """
    config = config_from(args)
    if not 1 <= args.steps <= MOST_STEPS:
        raise ValueError(f"--steps is {args.steps}; allowed: 1 to {MOST_STEPS}")
    for path in (args.trace, args.memory, args.csv):
        if path is not None:
            check_target(path)
    with Scratch() as folder:
        try:
            found = steps_profile_of(
                config,
                steps=args.steps,
                folder=str(folder),
                memory=args.memory is not None,
                download=args.download,
                report=_report,
            )
        finally:
            if sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")
        if isinstance(found, Problem):
            sys.stderr.write(f"error: {found}\n")
            return 2 if found.bad_request else 1
        for kept, target in ((found.trace_file, args.trace), (found.memory_file, args.memory)):
            if target is not None:
                kept_file(Path(kept), target)
    if args.csv is not None:
        with replaced(args.csv) as file, text_writer(file) as text:
            write_rows(text, profile_rows(found))
    nsys = nsys_line(config)
    if args.json:
        fields = {name: value for name, value in dataclasses.asdict(found).items() if not name.endswith("_file")}
        sums = {"kinds_ms": found.kinds(), "idle_share": found.idle_share, "dominant": dominant(found)}
        result = {"config": config.to_dict(), "profile": fields | sums, "nsys": nsys}
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        sys.stdout.write(in_words(config, found) + "\n")
    return 0


def in_words(config: RunConfig, profile: StepProfile) -> str:
    """Tables by part, by kind and by kernel, how they add up, what dominates, and the line for Nsight Systems."""
    each = profile.rounds
    thing = "kernel" if profile.device == "cuda" else "operator"
    what = "training step" if profile.workload == "train" else f"prefill and {profile.passes - 1} tokens"
    parts: list[Sequence[str]] = [("part", "ms", "waiting ms", "share", f"{thing}s")]
    for part in profile.parts:
        share = (part.busy_ms + part.waiting_ms) / profile.traced_ms
        times = f"{part.busy_ms / each:.3f}", f"{part.waiting_ms / each:.3f}", f"{share:.1%}"
        parts.append((part.name, *times, f"{part.runs / each:,.0f}"))
    totals = f"{profile.busy_ms / each:.3f}", f"{profile.waiting_ms / each:.3f}", "100.0%"
    parts.append(("together", *totals, f"{sum(part.runs for part in profile.parts) / each:,.0f}"))
    ran_ms = profile.busy_ms + profile.overlap_ms
    kinds: list[Sequence[str]] = [("kind", "ms", "of what ran")]
    kinds += [(name, f"{ms / each:.3f}", f"{ms / ran_ms:.1%}") for name, ms in profile.kinds().items()]
    kernels: list[Sequence[str]] = [(thing, "ms", "of what ran", "count", "us each", "most in")]
    for kernel in profile.kernels[:KERNELS]:
        shares = f"{kernel.total_ms / each:.3f}", f"{kernel.total_ms / ran_ms:.1%}"
        counts = f"{kernel.count / each:,.0f}", f"{kernel.each_us:.1f}"
        kernels.append((short_name(kernel.name), *shares, *counts, kernel.part))
    gap = f"longest gap: {profile.longest_gap_ms:.3f} ms, until {profile.longest_gap_part} went on"
    launches = "" if profile.launches is None else f"; {profile.launches / each:,.0f} launches"
    return "\n".join(
        [
            f"one {what} of {profile.rounds}" if profile.rounds > 1 else f"one {what}",
            *columns(parts, right=range(1, 5)),
            adds_up(profile),
            gap + launches,
            "",
            *columns(kinds, right=(1, 2)),
            "",
            *columns(kernels, right=range(1, 5)),
            "",
            dominant(profile),
            ONE_THING,
            "by Nsight Systems, where there is a CUDA device:",
            nsys_line(config),
        ]
    )


def _report(activity: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{activity}")
