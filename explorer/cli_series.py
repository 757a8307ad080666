"""What ladder, sweep and attribution share on the command line: their options, their worker, what they keep."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from explorer import cli_store
from explorer.cli_config import add_limits, add_within, limits_from
from explorer.cli_screen import ProgressLine
from explorer.config import RunConfig
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.compare import BLOCK_STEPS
from explorer.experiments.keeping import Keeping
from explorer.experiments.kept import Kept, conditions, state_path
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps, drive, ready
from explorer.experiments.yardsticks import yardsticks
from explorer.messages import Event
from explorer.results import export
from explorer.results.atomic import check_target
from explorer.results.checks import Checks, in_words
from explorer.results.environment import Environment
from explorer.results.log import RunRecord
from explorer.results.setting_row import Yardsticks

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted(Generic[Result]):
    """How an experiment went."""

    result: Result
    here: Environment
    interrupted: bool

    def yardsticks(self, base: RunConfig, args: argparse.Namespace) -> Yardsticks:
        """What figures of ``base`` and its like are held against, with blocks as ``args`` has them."""
        return yardsticks(base, self.here, block_s=args.block_s, block_steps=args.block_steps)


def add_series(parser: argparse.ArgumentParser, *, rows: str, block_steps: bool = True) -> None:
    """The options beside those of a configuration. ``rows``: what a row of the CSV is of; ``block_steps``: whether
    blocks have a least of steps."""
    add_limits(parser, block_steps=block_steps)
    parser.add_argument("--csv", type=Path, metavar="FILE", help=f"write a row a {rows}; with it an ended run goes on")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    add_within(parser)
    cli_store.add_recording(parser)


def add_checks(parser: argparse.ArgumentParser) -> None:
    """Options that leave timing, parity or proof away."""
    parser.add_argument(
        "--no-timing", dest="timing", action="store_false", help="time nothing more: only check, beside what --csv kept"
    )
    parser.add_argument("--no-parity", dest="parity", action="store_false", help="do not check the settings' numbers")
    parser.add_argument("--no-proof", dest="proof", action="store_false", help="do not profile whether toggles ran")


def conduct(
    args: argparse.Namespace,
    base: RunConfig,
    check: Callable[[Environment], None],
    experiment: Callable[[Series], Steps[Result]],
) -> Conducted[Result]:
    """Drive ``experiment`` with a worker of its own, once ``check`` has seen that it can run on this machine.

    Raises:
        ValueError: it cannot, or what is kept beside the CSV is of other conditions.
    """
    if args.csv is not None:
        check_target(args.csv)
    limits = limits_from(args)
    block_steps = getattr(args, "block_steps", BLOCK_STEPS)
    line = ProgressLine()
    recorder = cli_store.recorder(args)

    def on_event(event: Event) -> None:
        recorder.take(event)
        line.show_event(event)

    with ctrl_c_asks(args.within_s) as asked_to_stop:

        def steps() -> Steps[tuple[Result, Environment]]:
            here = yield from ready(asked_to_stop=asked_to_stop)
            check(here)

            def begin_run(run_id: int, config: RunConfig) -> RunRecord:
                record = RunRecord(run_id=run_id, config=config, reference=config, environment=here)
                recorder.begin_run(record)
                return record

            keeping = Keeping(recorder, here, block_s=args.block_s, block_steps=block_steps, begin_run=begin_run)
            series = Series(
                kept=Kept(state_path(args.csv), conditions(base, here, block_s=args.block_s, block_steps=block_steps)),
                limits=limits,
                block_s=args.block_s,
                block_steps=block_steps,
                download=args.download,
                asked_to_stop=asked_to_stop,
                timing=getattr(args, "timing", True),
                on_part=line.begin_part,
                on_pair=line.show_pairs,
                on_begin=keeping.begin,
                on_compared=keeping.end,
            )
            result = yield from experiment(series)
            return result, here

        try:
            result, here = drive(partial(open_worker, in_process=args.in_process), steps(), on_event)
        finally:
            recorder.close()
            line.clear()
        return Conducted(result=result, here=here, interrupted=asked_to_stop())


def write_csv(args: argparse.Namespace, rows: list[dict[str, export.Cell]]) -> None:
    """Write ``rows`` where ``--csv`` says, if it does."""
    if args.csv is not None:
        export.write_table(args.csv, rows)


def complaints(checks: Iterable[tuple[str, Checks]]) -> list[str]:
    """What is to be said of numbers that are out of tolerance and toggles that are not proven, by name."""
    words = [line for name, of in checks for line in in_words(of, name=name)]
    return [line for line in words if "OUTSIDE " in line or "NOT " in line]


def conditions_in_words(rows: Sequence[Mapping[str, export.Cell]]) -> list[str]:
    """The floor that verdicts were made by, and how many blocks were dropped; nothing where nothing was compared."""
    compared = [row for row in rows if row["n_pairs"] is not None]
    if not compared:
        return []
    floor = max(float(row["floor"] or 0) for row in compared)
    assumed = "" if all(row["floor_measured"] for row in compared) else ", assumed"
    dropped = sum(int(row["dropped_blocks"] or 0) for row in compared)
    return [f"floor {floor:.2%}{assumed}; {dropped} disturbed blocks dropped"]
