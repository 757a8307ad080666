"""``python main.py export`` and ``import``: stored runs to CSV, and to other machines and back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from explorer.cli_store import add_store, note, store_path
from explorer.optimizations.registry import baseline_levels
from explorer.results import export
from explorer.results.atomic import check_target
from explorer.results.blocks import in_words
from explorer.results.bundle import write_bundle
from explorer.results.comparison_export import write_comparison
from explorer.results.comparison_record import comparison_cells
from explorer.results.importing import read_any
from explorer.results.machine import several_machines
from explorer.results.numbers import in_ranges, parse_numbers
from explorer.results.store import Store


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--runs", metavar="IDS", help="numbers from `runs`, such as 3,5-7, or all")
    what.add_argument("--comparison", type=int, metavar="ID", help="number of a comparison from `runs`")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write one row a segment, or the comparison as one row"
    )
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write one row a step")
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write all of it as one file, for `import` elsewhere"
    )
    parser.add_argument("--floor", type=float, help="of --comparison: judge by this A/A floor, a share such as 0.005")
    add_store(parser)


def add_import_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``import``."""
    parser.add_argument("file", type=Path, help="a bundle that `export --bundle` wrote, or a CSV of runs")
    add_store(parser)


def run_export(args: argparse.Namespace) -> int:
    """Export and return the exit status 0.

    Raises:
        ValueError: a number of nothing that is stored, or a file that cannot be written.
        RuntimeError: the store or the disk fails.
    """
    targets = [path for path in (args.csv, args.samples, args.bundle) if path is not None]
    if args.floor is not None and (args.comparison is None or not 0 <= args.floor < 1):
        raise ValueError("--floor goes with --comparison, and is a share from 0 to below 1, such as 0.005")
    if not targets and args.comparison is None:
        raise ValueError("give a file to write: --csv FILE, --samples FILE or --bundle FILE")
    for path in targets:
        check_target(path)
    with Store(store_path(args), read_only=True) as store:
        if args.comparison is not None:
            return _export_comparison(args, store)
        records = [store.load(id) for id in (store.ids() if args.runs == "all" else parse_numbers(args.runs))]
        comparisons = store.comparisons_among([record.run_id for record in records])
    several = several_machines(records)
    if several is not None:
        note(several)
    if args.csv is not None:
        export.write_segments(args.csv, records, toggles=baseline_levels())
    if args.samples is not None:
        export.write_samples(args.samples, records)
    if args.bundle is not None:
        write_bundle(args.bundle, records, comparisons, toggles=baseline_levels())
    return 0


def run_import(args: argparse.Namespace) -> int:
    """Import a bundle, or a CSV of runs, and return the exit status 0.

    Raises:
        ValueError: it is neither.
        RuntimeError: the store or the disk fails.
    """
    bundle = read_any(args.file, toggles=baseline_levels())
    with Store(store_path(args)) as store:
        new = [record for record in bundle.runs if store.stored_id(record.uid) is None]
        store.keep(bundle.runs, bundle.comparisons, origin=args.file.name)
        ids = [id for record in new if (id := store.stored_id(record.uid)) is not None]
    here = len(bundle.runs) - len(new)
    sys.stderr.write(
        (f"imported as {in_ranges(ids)}" if ids else "nothing new")
        + (f"; {here} of {len(bundle.runs)} runs were here already" if here else "")
        + "\n"
    )
    return 0


def _export_comparison(args: argparse.Namespace, store: Store) -> int:
    comparison, arms = store.load_comparison(args.comparison)
    result = comparison.result(floor=args.floor)
    if result is None:
        raise ValueError(f"comparison {args.comparison} has no two pairs of blocks that count: nothing to judge")
    a, b = comparison.names
    words = in_words(result, a=a, b=b)
    if args.csv is not None:
        row = comparison_cells(comparison, result, arms, toggles=baseline_levels())
        write_comparison(args.csv, row, words=words)
    if args.samples is not None:
        export.write_samples(args.samples, arms)
    if args.bundle is not None:
        write_bundle(args.bundle, arms, [comparison], toggles=baseline_levels())
    sys.stdout.write(words + "\n")
    return 0
