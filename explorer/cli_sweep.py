"""``python main.py sweep``: throughput and memory by batch and sequence length, and the largest batch that fits."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence

from explorer.cli_config import comparable
from explorer.cli_screen import columns, number
from explorer.cli_series import add_series, conduct, write_csv
from explorer.config import RunConfig
from explorer.experiments.series import Series, must_run
from explorer.experiments.steps import Steps
from explorer.experiments.sweep import sweep, whole_numbers
from explorer.optimizations import registry
from explorer.results import export
from explorer.results.environment import Environment
from explorer.results.sweep import SeqPoints, sweep_rows

GIB = 2**30


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument("--batches", type=_numbers, required=True, metavar="N,…", help="batch sizes, as 1,2,4,8")
    parser.add_argument("--seqs", type=_numbers, metavar="N,…", help="sequence lengths, as 256,1024 (default --seq)")
    add_series(parser, rows="batch and sequence length", block_steps=False)


def run(args: argparse.Namespace) -> int:
    """Sweep and return the exit status: 0, 1 a point failed (not for want of memory), 2 wrong request, 130 Ctrl-C.

    Raises:
        ValueError: settings that are not allowed.
    """
    base = comparable(args)
    if base.workload != "train":
        raise ValueError(f"the workload is {base.workload}; only train is swept")
    seqs = args.seqs or [base.seq]
    for batch in args.batches:
        for seq in seqs:
            dataclasses.replace(base, batch=batch, seq=seq)  # within the limits, or ValueError

    def check(here: Environment) -> None:
        must_run({"the configuration": base}, here.device(base.device))

    def experiment(series: Series) -> Steps[Sequence[SeqPoints]]:
        return sweep(base, args.batches, seqs, series)

    conducted = conduct(args, base, check, experiment)
    rows = sweep_rows(base, conducted.result, toggles=registry.baseline_levels())
    write_csv(args, rows)
    sys.stdout.write((json.dumps(rows, indent=2) if args.json else in_words(base, conducted.result, rows)) + "\n")
    failed = [row for row in rows if row["outcome"] == "failed"]
    for row in failed:
        sys.stderr.write(f"error: batch {row['batch']} x {row['seq']}: {row['problem']}\n")
    untimed = sum(row["outcome"] == "fits" and row["batch"] in args.batches for row in rows)
    if untimed:
        sys.stderr.write(
            f"not timed, only seen to fit: {untimed} of {len(rows)}; {args.budget_s:g} s ended before their steps were "
            "steady: give --budget-s more\n"
        )
    if conducted.interrupted:
        return 130
    return 1 if failed else 0


def in_words(base: RunConfig, lines: Sequence[SeqPoints], rows: Sequence[Mapping[str, export.Cell]]) -> str:
    """Two maps, of throughput and of memory, and the largest batches."""
    by_place = {(row["seq"], row["batch"]): row for row in rows}
    batches = sorted({batch for line in lines for batch in line.points})
    seqs = [line.seq for line in lines]
    told = [_map("tokens/s", "tokens_per_s", ",.0f", 1, batches, seqs, by_place), ""]
    told += [_map("peak GiB", "peak_allocated_bytes", ".2f", GIB, batches, seqs, by_place), ""]
    for line in lines:
        known = f"the largest batch at {line.seq} tokens: {line.largest or 'none fits'}"
        if line.too_large is None:
            known += "; a larger one was not tried"
        else:
            known += f"; {line.too_large} does not fit" + ("" if line.exact else ", between them was not tried")
        told.append(known)
    return "\n".join(told)


def _map(
    title: str,
    column: str,
    form: str,
    per: float,
    batches: Sequence[int],
    seqs: Sequence[int],
    rows: Mapping[tuple[export.Cell, export.Cell], Mapping[str, export.Cell]],
) -> str:
    """One figure, a line a batch and a column a sequence length."""

    def cell(seq: int, batch: int) -> str:
        row = rows.get((seq, batch))
        if row is None:
            return ""
        return number(row[column], form, per=per) or str(row["outcome"])

    table = [(title, *(f"seq {seq}" for seq in seqs))]
    table += [(f"batch {batch}", *(cell(seq, batch) for seq in seqs)) for batch in batches]
    return "\n".join(columns(table))


def _numbers(text: str) -> list[int]:
    """Whole numbers behind commas.

    Raises:
        argparse.ArgumentTypeError: something else.
    """
    try:
        return whole_numbers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
