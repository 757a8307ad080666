"""``python main.py kernels``: the kernel lab, each operation's variants side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from explorer.cli_screen import ProgressLine, columns
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.kept import Kept, state_path
from explorer.experiments.lab import lab, lab_cases, lab_cells, lab_conditions
from explorer.experiments.steps import Steps, drive, ready
from explorer.results import export
from explorer.results.atomic import check_target
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.lab import OPERATIONS, LabRow
from explorer.results.lab_words import lab_words

MIB = 2**20


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default auto)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repetitions: under a minute on an H200")
    parser.add_argument("--only", type=_names, default=[], metavar="NAME,…", help=f"of these: {', '.join(OPERATIONS)}")
    parser.add_argument("--variants", type=_names, default=[], metavar="NAME,…", help="such as torch,triton")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a row a variant; with it an ended run goes on")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--in-process", action="store_true", help="run the worker on a thread of this process")


def run(args: argparse.Namespace) -> int:
    """Measure and return the exit status: 0, 1 a variant failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: what is asked for is not there, or what is kept beside the CSV is of other conditions.
    """
    if args.csv is not None:
        check_target(args.csv)
    line = ProgressLine()
    with ctrl_c_asks() as asked_to_stop:

        def write(rows: Sequence[LabRow], device: DeviceInfo, here: Environment) -> None:
            if args.csv is not None and rows:
                export.write_table(args.csv, lab_cells(rows, device, here))

        def steps() -> Steps[tuple[Sequence[LabRow], DeviceInfo, Environment]]:
            here = yield from ready(asked_to_stop=asked_to_stop)
            device = here.device(args.device)
            rows = yield from lab(
                lab_cases(device, quick=args.quick, only=args.only, variants=args.variants),
                device=device,
                quick=args.quick,
                kept=Kept(state_path(args.csv), lab_conditions(device, here, quick=args.quick)),
                asked_to_stop=asked_to_stop,
                on_part=line.begin_part,
                on_rows=lambda rows: write(rows, device, here),
                next_id=count(1).__next__,
            )
            return rows, device, here

        try:
            rows, device, here = drive(partial(open_worker, in_process=args.in_process), steps(), line.show_event)
        finally:
            line.clear()
        interrupted = asked_to_stop()
    if args.json:
        found = {"rows": lab_cells(rows, device, here), "sentences": lab_words(rows)}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join([*table(rows), "", *lab_words(rows)]) + "\n")
    failed = [row for row in rows if row.outcome == "failed"]
    for row in failed:
        sys.stderr.write(f"error: {row.case}, {row.variant}: {row.problem}\n")
    if interrupted:
        return 130
    return 1 if failed else 0


def table(rows: Sequence[LabRow]) -> list[str]:
    """The rows as lines below their headings; which kernel takes what is left to its sentence."""
    found: list[tuple[str, ...]] = [
        (
            *("operation", "dtype", "shape", "variant", "us", "+-", "host us"),
            *("GB/s", "TFLOP/s", "of ceiling", "error", "peak MiB"),
        )
    ]
    for row in rows:
        if row.case.operation == "attention_support":
            continue
        words = (row.case.operation, row.case.dtype, row.case.shape_words, row.variant)
        if row.outcome != "measured":
            found.append((*words, row.outcome, *[""] * 7))
            continue
        figures = (
            (row.time_us, ",.1f"),
            (row.spread, ".1%"),
            (row.host_us, ",.1f"),
            (row.gb_per_s, ",.0f"),
            (row.tflop_per_s, ",.1f"),
            (row.ceiling_fraction, ".0%"),
            (row.rel_error, ".1e"),
            (row.peak_bytes / MIB if row.peak_bytes >= 0 else float("nan"), ",.0f"),
        )
        found.append((*words, *("" if value != value else format(value, form) for value, form in figures)))
    return columns(found, right=range(4, len(found[0])))


def _names(text: str) -> list[str]:
    return text.split(",")
