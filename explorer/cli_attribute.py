"""``python main.py attribute``: what does each toggle give alone, and what beside the others?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from explorer.cli_config import comparable
from explorer.cli_screen import columns, number
from explorer.cli_series import add_checks, add_series, complaints, conditions_in_words, conduct, write_csv
from explorer.experiments.attribution import MOST_TOGGLES, attribute, settings
from explorer.experiments.ladder import addition
from explorer.experiments.series import Series, must_run
from explorer.experiments.steps import Steps
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.attribution_rows import Tried, attribution_rows, effects_of, name_of
from explorer.results.attribution_words import attribution_words
from explorer.results.environment import Environment

GIB = 2**30


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument(
        "--toggles",
        required=True,
        metavar="TOGGLE=LEVEL,…",
        help=f"2 to {MOST_TOGGLES} toggles, each off and at this level in every combination (2^k settings)",
    )
    add_series(parser, rows="setting and an effect")
    add_checks(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and return the exit status: 0, 1 a setting failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    base = comparable(args)
    toggles = [addition(text) for text in args.toggles.split(",")]
    configs = settings(base, toggles)

    def check(here: Environment) -> None:
        names = {name_of(setting): config for setting, config in configs.items()}
        must_run(names, here.device(base.device))

    def experiment(series: Series) -> Steps[Sequence[Tried]]:
        return attribute(configs, series, parity=args.parity, proof=args.proof)

    conducted = conduct(args, base, check, experiment)
    tried = conducted.result
    found = effects_of(tried, [toggle.name for toggle in toggles])
    yardsticks = conducted.yardsticks(base, args)
    rows = attribution_rows(tried, found, yardsticks, toggles=registry.baseline_levels())
    write_csv(args, rows)
    floor = yardsticks.floors(tuple(configs.values()))[0]
    sentences = attribution_words(found, floor=floor)
    sys.stdout.write((json.dumps(rows, indent=2) if args.json else in_words(tried, rows, sentences)) + "\n")
    failed = [row for row in rows if row["problem"]]
    for row in failed:
        sys.stderr.write(f"error: {row['of']}: {row['problem']}\n")
    if conducted.interrupted:
        return 130
    return 1 if failed else 0


def in_words(tried: Sequence[Tried], rows: Sequence[Mapping[str, export.Cell]], sentences: Sequence[str]) -> str:
    """The settings, the effects, and what is to be said of effects, numbers, toggles and the measuring."""
    some = [row for row in rows if row["kind"] == "setting"]
    table = [("setting", "ms", "tokens/s", "against the baseline", "peak GiB", "parity", "proof")]
    for row in some:
        table.append(
            (
                str(row["of"]),
                number(row["step_ms_median"], ".2f"),
                number(row["tokens_per_s"], ",.0f"),
                _speedup(row),
                number(row["peak_allocated_bytes"], ".2f", per=GIB),
                str(row["parity"]),
                str(row["proof"]),
            )
        )
    lines = [*columns(table), ""]
    effects = [(str(row["kind"]), str(row["of"]), _speedup(row)) for row in rows if row["kind"] != "setting"]
    if effects:
        lines += columns([("effect", "of", "times as fast"), *effects])
    else:
        lines.append("effects: not known, since not every setting was measured")
    checks = [(str(row["of"]), one.checks) for row, one in zip(some, tried, strict=True)]
    return "\n".join([*lines, *sentences, *complaints(checks), *conditions_in_words(some)])


def _speedup(row: Mapping[str, export.Cell]) -> str:
    if row["speedup"] is None:
        return "failed" if row["problem"] else ""
    return f"{row['speedup']:.3f}x ({row['ci_low']:.3f}-{row['ci_high']:.3f}) {row['verdict']}"
