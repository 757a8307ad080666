"""``python main.py compare``: is B faster than A, by how much, and how sure is that?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from explorer.cli_config import add_limits, changed, comparable, limits_from
from explorer.cli_screen import ProgressLine, ctrl_c_asks
from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.experiments.check import check, unchecked, wanted
from explorer.experiments.compare import Compared, Limits, compare
from explorer.experiments.floors import known_floor
from explorer.experiments.recording import record
from explorer.experiments.steps import AskedToStop, Steps, drive, ready
from explorer.messages import Compare, Event
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.atomic import check_target, replaced
from explorer.results.blocks import Blocks, in_words
from explorer.results.checks import Checks, checks_cells
from explorer.results.checks import in_words as checks_in_words
from explorer.results.comparison_record import ComparisonRecord, comparison_cells
from explorer.results.label import label
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
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as one row")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write one row a step")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


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
    names = _names(arms)
    log = RunLog()
    line = ProgressLine()

    def on_event(event: Event) -> None:
        record(log, event)
        line.show_event(event)

    def on_pair(blocks: Blocks) -> None:
        i = blocks.interval()
        if i is not None:
            line.show(f"{i.n_pairs} pairs: {i.ratio:.4f}x ({i.low:.4f}-{i.high:.4f})")

    for run_id, arm in zip(RUN_IDS, arms, strict=True):
        log.begin_run(run_id, arm)
    command = Compare(run_ids=RUN_IDS, arms=arms, block_s=args.block_s, seed=base.seed, download=args.download)
    with ctrl_c_asks() as asked_to_stop:
        steps = _measure(command, args, limits, on_pair, asked_to_stop)
        try:
            compared, checks = drive(lambda: open_worker(in_process=args.in_process), steps, on_event)
        finally:
            line.clear()
        interrupted = asked_to_stop()
    if args.samples is not None:
        export.write_samples(args.samples, log.runs)
    if compared.problem is not None:
        sys.stderr.write(f"error: {compared.problem}\n")
        return 2 if compared.problem.bad_request else 1
    comparison = _judged(compared, arms, names, log, args)
    result = comparison.result()
    if result is None:
        pairs = len(compared.blocks.counted)
        sys.stderr.write(f"error: {pairs} pairs of blocks in {args.budget_s:g} s; give --budget-s more\n")
        return 130 if interrupted else 1
    comparison.beside = _beside(arms, checks)
    runs = log.run(RUN_IDS[0]), log.run(RUN_IDS[1])
    row = comparison_cells(comparison, result, runs, toggles=registry.baseline_levels())
    if args.csv is not None:
        with replaced(args.csv) as file, export.text_writer(file) as text:
            export.write_rows(text, [row])
    if args.json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
    else:
        lines = [in_words(result, a=names[0], b=names[1])]
        for config, name in zip(arms, names, strict=True):
            if config in checks:
                lines += checks_in_words(checks[config], name=name)
        sys.stdout.write("\n".join(dict.fromkeys(lines)) + "\n")
    return 130 if interrupted else 0


def _measure(
    command: Compare,
    args: argparse.Namespace,
    limits: Limits,
    on_pair: Callable[[Blocks], None],
    asked_to_stop: AskedToStop,
) -> Steps[tuple[Compared, Mapping[RunConfig, Checks]]]:
    """The blocks first, and then what would disturb them."""
    yield from ready()
    compared = yield from compare(command, limits=limits, asked_to_stop=asked_to_stop, on_pair=on_pair)
    checks: Mapping[RunConfig, Checks] = {config: unchecked(config) for config in command.arms}
    verify = wanted(checks, run_id=CHECKS_ID, parity=args.parity, proof=args.proof, download=args.download)
    measured = compared.problem is None and compared.blocks.interval() is not None
    if verify is not None and measured and compared.worker_usable and not asked_to_stop():
        checks = yield from check(verify, checks, asked_to_stop=asked_to_stop, on_found=lambda config, checks: None)
    return compared, checks


def _arm(base: RunConfig, settings: str) -> RunConfig:
    return changed(base, settings) if settings else base


def _names(arms: tuple[RunConfig, RunConfig]) -> tuple[str, str]:
    """What each arm is called: A by itself, B by what differs from A."""
    a = label(arms[0], reference=arms[0], toggles=registry.baseline_levels())
    return a, ", ".join(registry.changes(*arms)) or f"{a} again"


def _judged(
    compared: Compared,
    arms: tuple[RunConfig, RunConfig],
    names: tuple[str, str],
    log: RunLog,
    args: argparse.Namespace,
) -> ComparisonRecord:
    """The comparison with the floor that it is judged by."""
    floor, measured = args.floor, True
    if floor is None:
        assert log.environment is not None
        floor, measured = known_floor(arms, log.environment, block_s=args.block_s)
    return ComparisonRecord(
        run_uids=(log.run(RUN_IDS[0]).uid, log.run(RUN_IDS[1]).uid),
        names=names,
        floor=floor,
        floor_measured=measured,
        blocks=compared.blocks,
        ended_by=compared.ended_by,
    )


def _beside(arms: tuple[RunConfig, RunConfig], checks: Mapping[RunConfig, Checks]) -> dict[str, export.Cell]:
    """Parity and proof of each arm."""
    return {
        f"{arm}_{name}": value
        for arm, config in zip("ab", arms, strict=True)
        for name, value in checks_cells(checks[config]).items()
    }
