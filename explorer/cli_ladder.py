"""``python main.py ladder``: what does each optimization add to those before it?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from explorer.cli_config import add_limits, comparable, levels_from, limits_from
from explorer.cli_screen import ProgressLine, columns, ctrl_c_asks
from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.experiments.floors import known_floor
from explorer.experiments.kept import Kept, conditions, state_path
from explorer.experiments.ladder import Addition, check_ladder, ladder
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps, drive, ready
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.atomic import check_target, replaced
from explorer.results.checks import in_words as checks_in_words
from explorer.results.environment import Environment
from explorer.results.ladder import Rung, ladder_rows

GIB = 2**30


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument(
        "--rungs",
        nargs="+",
        required=True,
        metavar="TOGGLE=LEVEL",
        help="what each rung adds to the one below it, the lowest first; more toggles of one rung behind commas",
    )
    add_limits(parser)
    parser.add_argument("--no-parity", dest="parity", action="store_false", help="do not check the rungs' numbers")
    parser.add_argument("--no-proof", dest="proof", action="store_false", help="do not profile whether toggles ran")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a row a rung; with it an ended run goes on")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")


def run(args: argparse.Namespace) -> int:
    """Climb and return the exit status: 0, 1 a rung failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    base = comparable(args)
    additions = [Addition(name=text, levels=levels_from(text)) for text in args.rungs]
    limits = limits_from(args)
    if args.csv is not None:
        check_target(args.csv)
    line = ProgressLine()

    with ctrl_c_asks() as asked_to_stop:

        def steps() -> Steps[tuple[Environment, Sequence[Rung]]]:
            here = yield from ready()
            check_ladder(base, additions, here.device(base.device))
            series = Series(
                kept=Kept(state_path(args.csv), conditions(base, here, block_s=args.block_s)),
                limits=limits,
                block_s=args.block_s,
                download=args.download,
                asked_to_stop=asked_to_stop,
                on_part=line.begin_part,
                on_pair=line.show_pairs,
            )
            rungs = yield from ladder(base, additions, series, parity=args.parity, proof=args.proof)
            return here, rungs

        try:
            here, rungs = drive(partial(open_worker, in_process=args.in_process), steps(), line.show_event)
        finally:
            line.clear()
        interrupted = asked_to_stop()

    def floors(arms: tuple[RunConfig, ...]) -> tuple[float, bool]:
        return known_floor(arms, here, block_s=args.block_s)

    rows = ladder_rows(rungs, floors, toggles=registry.baseline_levels())
    if args.csv is not None:
        with replaced(args.csv) as file, export.text_writer(file) as text:
            export.write_rows(text, rows)
    sys.stdout.write((json.dumps(rows, indent=2) if args.json else in_words(rungs, rows)) + "\n")
    failed = [rung for rung in rungs if rung.measured is not None and rung.measured.problem is not None]
    for rung in failed:
        assert rung.measured is not None
        sys.stderr.write(f"error: {rung.name}: {rung.measured.problem}\n")
    if interrupted:
        return 130
    return 1 if failed else 0


def in_words(rungs: Sequence[Rung], rows: Sequence[Mapping[str, export.Cell]]) -> str:
    """The table, then what is to be said of the rungs' numbers and toggles, and of what was measured."""
    header = ("setting", "ms", "tokens/s", "against the one before", "against the baseline", "peak GiB", "parity")
    table = [(*header, "proof")]
    for row in rows:
        table.append(
            (
                f"{'+ ' if row['rung'] else ''}{row['setting']}",
                _number(row["step_ms_median"], ".2f"),
                _number(row["tokens_per_s"], ",.0f"),
                _speedup(row, ""),
                _speedup(row, "_vs_baseline"),
                _number(row["peak_allocated_bytes"], ".2f", per=GIB),
                str(row["parity"]),
                str(row["proof"]),
            )
        )
    lines = columns(table)
    for rung in rungs:
        lines += [words for words in checks_in_words(rung.checks, name=rung.name) if "NOT " in words or "OUT" in words]
    measured = [row for row in rows if row["n_pairs"] is not None]
    assumed = any(not row["floor_measured"] for row in measured)
    dropped = sum(int(row["dropped_blocks"] or 0) for row in measured)
    if measured:
        floor = max(float(row["floor"] or 0) for row in measured)
        lines.append(f"floor {floor:.2%}{', assumed' if assumed else ''}; {dropped} disturbed blocks dropped")
    return "\n".join(lines)


def _speedup(row: Mapping[str, export.Cell], suffix: str) -> str:
    ratio, low, high = (row[f"{name}{suffix}"] for name in ("speedup", "ci_low", "ci_high"))
    if ratio is None:
        return "failed" if row["problem"] and not suffix else ""
    return f"{ratio:.3f}x ({low:.3f}-{high:.3f}) {row[f'verdict{suffix}']}"


def _number(value: export.Cell, form: str, *, per: float = 1) -> str:
    return "" if not isinstance(value, (int, float)) else format(value / per, form)
