"""``python main.py floor``: how much do two equal arms seem to differ here, and is a known delay found?"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from explorer.arguments import at_least
from explorer.cli_config import add_limits, add_within, comparable, limits_from
from explorer.cli_screen import ProgressLine
from explorer.config import RunConfig
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.compare import Limits
from explorer.experiments.floors import floor_key, measure_floor, read_floor, write_floor
from explorer.experiments.steps import AskedToStop, Steps, drive, ready
from explorer.messages import Problem
from explorer.results.floor import Floor
from explorer.results.floor_words import floor_words

ENOUGH_FOUND = 0.95
"""Share of comparisons with a delayed arm that must call it slower."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    add_limits(parser)
    parser.add_argument(
        "--repeats", type=int, default=20, help="comparisons in all, those of earlier runs included (default 20)"
    )
    parser.add_argument(
        "--check-delay",
        type=_share,
        metavar="SHARE",
        help="beside, delay the second arm by this share of its step time (2%% or 0.02); count how often it is called "
        "slower",
    )
    add_within(parser)
    parser.add_argument("--anew", action="store_true", help="forget what earlier runs measured")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and return the exit status: 0; 1 failed, or a delay was not found; 2 wrong request; 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    config = comparable(args)
    at_least("--repeats", args.repeats, 1)
    limits = limits_from(args)
    line = ProgressLine()
    with ctrl_c_asks(args.within_s) as asked_to_stop:
        until_s = math.inf if args.within_s is None else time.monotonic() + args.within_s
        steps = _measure(config, args, limits, line, asked_to_stop, until_s)
        try:
            floor, problem = drive(lambda: open_worker(in_process=args.in_process), steps, line.show_event)
        finally:
            line.clear()
        interrupted = problem is None and floor.done(args.check_delay or 0.0) < args.repeats
    if problem is not None:
        sys.stderr.write(f"error: {problem}\n")
    delay = args.check_delay or 0.0
    found = _found(floor, delay)
    sys.stdout.write((json.dumps(found, indent=2) if args.json else "\n".join(floor_words(floor, delay))) + "\n")
    if problem is not None:
        return 2 if problem.bad_request else 1
    if interrupted:
        return 130
    return 0 if not delay or found["slower"] >= ENOUGH_FOUND * found["comparisons"] else 1


def _measure(
    config: RunConfig,
    args: argparse.Namespace,
    limits: Limits,
    line: ProgressLine,
    asked_to_stop: AskedToStop,
    until_s: float,
) -> Steps[tuple[Floor, Problem | None]]:
    here = yield from ready(asked_to_stop=asked_to_stop)
    key = floor_key(config, here, block_s=args.block_s, block_steps=args.block_steps)
    delay = args.check_delay or 0.0
    latest = Floor() if args.anew else read_floor(key)

    def keep(floor: Floor) -> None:
        nonlocal latest
        before, latest = latest, floor
        write_floor(key, floor)
        line.clear()
        for share in (0.0, delay) if delay else (0.0,):
            for one in floor.of(share)[len(before.of(share)) :]:
                i = one.interval
                late = f", delayed by {share:.2%}" if share else ""
                sys.stderr.write(f"  {i.ratio:.4f}x ({i.low:.4f}-{i.high:.4f}), {i.n_pairs} pairs{late}\n")
        began()

    def began() -> None:
        done = latest.done(delay)
        if done < args.repeats:
            line.begin_part(f"comparison {done + 1} of {args.repeats}", args.repeats - done)

    began()
    problem = yield from measure_floor(
        config,
        latest,
        delay=delay,
        repeats=args.repeats,
        block_s=args.block_s,
        block_steps=args.block_steps,
        limits=limits,
        download=args.download,
        asked_to_stop=asked_to_stop,
        until_s=until_s,
        on_pair=line.show_pairs,
        on_comparison=keep,
    )
    return latest, problem


def _found(floor: Floor, delay: float) -> dict[str, Any]:
    """What is printed as JSON."""
    counts: Mapping[str, int] = Counter(floor.verdicts(delay))
    verdicts = {name: counts[name] for name in ("faster", "slower", "no difference shown", "unsettled")}
    some = floor.of(delay)
    return {
        "floor": floor.measured,
        "delay": delay,
        "comparisons": len(some),
        **verdicts,
        "ratios": [one.interval.ratio for one in some],
        "dropped_blocks": sum(one.dropped_blocks for one in some),
    }


def _share(text: str) -> float:
    """2% or 0.02.

    Raises:
        argparse.ArgumentTypeError: not a share above 0 and at most 1.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give a share such as 2% or 0.02")
    return value
