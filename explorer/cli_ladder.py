"""``python main.py ladder``: what does each optimization add to those before it?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from explorer.cli_config import comparable
from explorer.cli_screen import columns, mfu, number
from explorer.cli_series import add_checks, add_series, complaints, conditions_in_words, conduct, write_csv
from explorer.experiments.command_line import profile_line
from explorer.experiments.ladder import addition, check_ladder, ladder
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps
from explorer.optimizations import registry
from explorer.results import export
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
    add_series(parser, rows="rung")
    add_checks(parser)


def run(args: argparse.Namespace) -> int:
    """Climb and return the exit status: 0, 1 a rung failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    base = comparable(args)
    additions = [addition(text) for text in args.rungs]

    def check(here: Environment) -> None:
        check_ladder(base, additions, here.device(base.device))

    def experiment(series: Series) -> Steps[Sequence[Rung]]:
        return ladder(base, additions, series, parity=args.parity, proof=args.proof)

    sys.stderr.write(f"profile first, then change one thing at a time: {profile_line(base)}\n")
    conducted = conduct(args, base, check, experiment)
    rungs = conducted.result
    rows = ladder_rows(rungs, conducted.yardsticks(base, args), toggles=registry.baseline_levels())
    write_csv(args, rows)
    sys.stdout.write((json.dumps(rows, indent=2) if args.json else in_words(rungs, rows)) + "\n")
    failed = [(rung.name, rung.measured.problem) for rung in rungs if rung.measured and rung.measured.problem]
    for name, problem in failed:
        sys.stderr.write(f"error: {name}: {problem}\n")
    if conducted.interrupted:
        return 130
    return 1 if failed else 0


def in_words(rungs: Sequence[Rung], rows: Sequence[Mapping[str, export.Cell]]) -> str:
    """The table, then what is to be said of the rungs' numbers and toggles, and of what was measured."""
    header = (
        "setting",
        "ms",
        "tokens/s",
        "against the one before",
        "against the baseline",
        "peak GiB",
        "MFU",
        "mJ/token",
    )
    table = [(*header, "parity", "proof")]
    for row in rows:
        table.append(
            (
                f"{'+ ' if row['rung'] else ''}{row['setting']}",
                number(row["step_ms_median"], ".2f"),
                number(row["tokens_per_s"], ",.0f"),
                _speedup(row, ""),
                _speedup(row, "_vs_baseline"),
                number(row["peak_allocated_bytes"], ".2f", per=GIB),
                mfu(row),
                number(row["joules_per_token"], ".2f", per=1e-3),
                str(row["parity"]),
                str(row["proof"]),
            )
        )
    checks = [(rung.name, rung.checks) for rung in rungs]
    return "\n".join([*columns(table), *complaints(checks), *conditions_in_words(rows)])


def _speedup(row: Mapping[str, export.Cell], suffix: str) -> str:
    ratio, low, high = (row[f"{name}{suffix}"] for name in ("speedup", "ci_low", "ci_high"))
    if ratio is None:
        return "failed" if row["problem"] and not suffix else ""
    return f"{ratio:.3f}x ({low:.3f}-{high:.3f}) {row[f'verdict{suffix}']}"
