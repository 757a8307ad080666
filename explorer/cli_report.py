"""``python main.py report``: stored runs as one HTML file to show or to send."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from explorer.cli_store import add_store, note, store_path
from explorer.optimizations.registry import baseline_levels
from explorer.results.atomic import check_target
from explorer.results.numbers import parse_numbers
from explorer.results.report import write_report
from explorer.results.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``report``."""
    parser.add_argument("--runs", required=True, metavar="IDS", help="numbers from `runs`, such as 3,5-7, or all")
    parser.add_argument("--html", type=Path, required=True, metavar="FILE", help="the file to write; it stands alone")
    add_store(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report and return the exit status 0.

    Raises:
        ValueError: a number of no stored run, none that has a step, or a file that cannot be written.
        RuntimeError: the store or the disk fails.
    """
    check_target(args.html)
    with Store(store_path(args), read_only=True) as store:
        records = [store.load(id) for id in (store.ids() if args.runs == "all" else parse_numbers(args.runs))]
        comparisons = store.comparisons_among([record.run_id for record in records])
    for record in records:
        if not record.segments:
            note(f"run {record.run_id} has no step and is left out")
    write_report(args.html, records, comparisons, toggles=baseline_levels())
    sys.stderr.write(f"wrote {args.html}\n")
    return 0
