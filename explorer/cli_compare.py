"""``python main.py compare``: is B faster than A, by how much, and how sure is that? Of texts: where do they part?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from explorer import cli_compare_texts, cli_store
from explorer.cli_config import add_limits, changed, comparable, limits_from
from explorer.cli_screen import ProgressLine
from explorer.config import RunConfig
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.arms import Arms, names
from explorer.experiments.checked_comparison import CheckedComparison, checks_row, compare_and_check
from explorer.experiments.compare import Compared, Limits, too_few
from explorer.experiments.floors import known_floor
from explorer.experiments.recording import record
from explorer.experiments.steps import AskedToStop, Steps, drive, ready
from explorer.messages import Compare, Event
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.atomic import check_target
from explorer.results.blocks import Blocks, in_words
from explorer.results.checks import in_words as checks_in_words
from explorer.results.comparison_export import write_comparison
from explorer.results.comparison_record import ComparisonRecord, comparison_cells
from explorer.results.floor import ASSUMED_FLOOR
from explorer.results.log import RunLog

RUN_IDS = (1, 2)
CHECKS_ID = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    add_limits(parser)
    for arm in ("a", "b"):
        parser.add_argument(
            f"--{arm}",
            default="",
            metavar="NAME=VALUE[,…]",
            help=f"what sets arm {arm.upper()} apart: toggles, batch or seq; nothing: the settings as they are",
        )
    parser.add_argument(
        "--floor", type=float, help="the A/A floor as a share (default: what `floor` measured, else 0.005)"
    )
    parser.add_argument("--no-parity", dest="parity", action="store_false", help="do not check the arms' numbers")
    parser.add_argument("--no-proof", dest="proof", action="store_false", help="do not profile whether toggles ran")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as one row (texts: a row each)")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write one row a step")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    cli_store.add_recording(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and return the exit status: 0, 1 failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    base = comparable(args)
    arms = (_arm(base, args.a), _arm(base, args.b))
    limits = limits_from(args)
    if args.floor is not None and not 0 <= args.floor < 1:
        raise ValueError(f"--floor is {args.floor}; it is a share from 0 to below 1, such as 0.005")
    for path in (args.csv, args.samples):
        if path is not None:
            check_target(path)
    if base.workload == "generate":
        return cli_compare_texts.run(args, arms)
    log = RunLog()
    recorder = cli_store.recorder(args)
    line = ProgressLine()

    def on_event(event: Event) -> None:
        record(log, event)
        recorder.take(event)
        line.show_event(event)

    for run_id, arm in zip(RUN_IDS, arms, strict=True):
        recorder.begin_run(log.begin_run(run_id, arm))
    a, b = log.runs
    comparison = ComparisonRecord(run_uids=(a.uid, b.uid), names=names(arms), floor=ASSUMED_FLOOR, floor_measured=False)
    recorder.begin_comparison(comparison)

    def on_compared(compared: Compared) -> None:
        comparison.blocks = compared.blocks
        if compared.problem is None:
            comparison.ended_by = compared.ended_by
            comparison.floor, comparison.floor_measured = _floor(arms, log, args)
            recorder.end_comparison(comparison)

    command = Compare(
        run_ids=RUN_IDS,
        arms=arms,
        block_s=args.block_s,
        block_steps=args.block_steps,
        seed=base.seed,
        download=args.download,
    )
    with ctrl_c_asks() as asked_to_stop:
        steps = _measure(command, args, limits, line.show_pairs, on_compared, asked_to_stop)
        try:
            compared, checks = drive(lambda: open_worker(in_process=args.in_process), steps, on_event)
            comparison.beside = checks_row(arms, checks)
            recorder.put_beside(comparison.uid, comparison.beside)
        finally:
            recorder.close()
            line.clear()
        interrupted = asked_to_stop()
    if args.samples is not None:
        export.write_samples(args.samples, log.runs)
    if compared.problem is not None:
        sys.stderr.write(f"error: {compared.problem}\n")
        return 2 if compared.problem.bad_request else 1
    result = comparison.result()
    if result is None:
        sys.stderr.write(f"error: {too_few(compared.blocks, limits)} (--budget-s)\n")
        return 130 if interrupted else 1
    row = comparison_cells(comparison, result, (a, b), toggles=registry.baseline_levels())
    words = in_words(result, a=comparison.names[0], b=comparison.names[1])
    if args.csv is not None:
        write_comparison(args.csv, row, words=words)
    if args.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        lines = [words]
        for config, name in zip(arms, comparison.names, strict=True):
            if config in checks:
                lines += checks_in_words(checks[config], name=name)
        sys.stdout.write("\n".join(dict.fromkeys(lines)) + "\n")
    return 130 if interrupted else 0


def _measure(
    command: Compare,
    args: argparse.Namespace,
    limits: Limits,
    on_pair: Callable[[Blocks], None],
    on_compared: Callable[[Compared], None],
    asked_to_stop: AskedToStop,
) -> Steps[CheckedComparison]:
    yield from ready(asked_to_stop=asked_to_stop)
    return (
        yield from compare_and_check(
            command,
            limits=limits,
            checks_id=CHECKS_ID,
            parity=args.parity,
            proof=args.proof,
            asked_to_stop=asked_to_stop,
            on_pair=on_pair,
            on_compared=on_compared,
        )
    )


def _arm(base: RunConfig, settings: str) -> RunConfig:
    return changed(base, settings) if settings else base


def _floor(arms: Arms, log: RunLog, args: argparse.Namespace) -> tuple[float, bool]:
    """The floor to judge by, and whether it was measured."""
    if args.floor is not None:
        return args.floor, True
    assert log.environment is not None
    return known_floor(arms, log.environment, block_s=args.block_s, block_steps=args.block_steps)
