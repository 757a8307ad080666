"""``python main.py runs``: what is stored, and taking runs out of it."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from explorer.cli_screen import columns
from explorer.cli_store import add_store, note, store_path
from explorer.optimizations.registry import baseline_levels
from explorer.results.numbers import in_ranges, parse_numbers
from explorer.results.store import Store
from explorer.results.stored import StoredComparison, StoredRun

DEFAULT_LIMIT = 20
_RUN_TITLES = ("run", "started", "what differs", "workload", "model", "device", "steps", "tokens/s", "peak", "state")
_COMPARISON_TITLES = ("comparison", "started", "A", "B", "runs", "verdict of B", "ratio (95%)", "pairs")
_NUMBERS = frozenset({"run", "steps", "tokens/s", "peak", "comparison", "pairs"})


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``runs``."""
    parser.add_argument(
        "--limit",
        type=int,
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"list the last N (default {DEFAULT_LIMIT}; 0: all)",
    )
    parser.add_argument("--delete", metavar="IDS", help="take these runs out of the store for good, such as 3,5-7")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    add_store(parser)


def run(args: argparse.Namespace) -> int:
    """List or delete, and return the exit status 0.

    Raises:
        ValueError: a number of no stored run, or one that may not be deleted.
        RuntimeError: the store is damaged, locked, or of a newer version.
    """
    if args.limit < 0:
        raise ValueError(f"--limit is {args.limit}; allowed: 0 (all) and above")
    path = store_path(args)
    if args.delete is not None:
        ids = parse_numbers(args.delete)
        if not os.path.exists(path):
            raise ValueError(f"no runs are stored at {path}")
        with Store(path) as store:
            store.delete(ids)
        sys.stderr.write(f"deleted {in_ranges(ids)}\n")
        return 0
    if not os.path.exists(path):
        note(f"no runs are stored at {path} yet")
        if args.json:
            sys.stdout.write(json.dumps({"runs": [], "comparisons": [], "total": 0}, indent=2) + "\n")
        return 0
    with Store(path, read_only=True) as store:
        listing, comparisons = store.runs(args.limit or None), store.comparisons(args.limit or None)
    for line in listing.unreadable:
        note(line)
    if args.json:
        content = {
            "runs": [_run_values(line) for line in listing.runs],
            "comparisons": [_comparison_values(line) for line in comparisons],
            "total": listing.total,
        }
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return 0
    _print_table(_RUN_TITLES, [_run_cells(line) for line in listing.runs])
    if comparisons:
        sys.stdout.write("\n")
        _print_table(_COMPARISON_TITLES, [_comparison_cells(line) for line in comparisons])
    if len(listing.runs) + len(listing.unreadable) < listing.total:
        note(f"the last {args.limit} of {listing.total:,} runs; --limit 0 lists all")
    return 0


def _run_values(line: StoredRun) -> dict[str, Any]:
    """A run for programs; null for what was not measured."""
    config = line.config.to_dict()
    values: dict[str, Any] = {
        "run": line.id,
        "uid": line.uid,
        "started_at": line.started_at,
        "label": line.label(baseline_levels()),
        **{name: config[name] for name in ("workload", "model", "device")},
        "device_name": line.device_name,
        "segments": line.segments,
        "steps": line.samples,
        "tokens_per_s_median": line.tokens_per_s,
        "step_ms_median": line.step_ms,
        "settled": line.settled,
        "peak_allocated_bytes": line.peak_allocated_bytes,
        "outcome": line.outcome,
        "problem": line.problem,
        "imported_from": line.origin,
        "config": config,
    }
    unmeasured = [
        name
        for name, value in values.items()
        if (isinstance(value, float) and math.isnan(value)) or (name.endswith("_bytes") and value < 0)
    ]
    return values | dict.fromkeys(unmeasured)


def _comparison_values(line: StoredComparison) -> dict[str, Any]:
    result: Mapping[str, Any] = line.result or {"verdict": None}
    (a, b), (run_a, run_b) = line.names, line.run_ids
    return {
        "comparison": line.id,
        "started_at": line.started_at,
        "a": a,
        "b": b,
        "run_a": run_a,
        "run_b": run_b,
        **result,
    }


def _run_cells(line: StoredRun) -> tuple[str, ...]:
    mark = "" if line.settled else "~"
    changes = f" ({line.segments} settings, its last)" if line.segments > 1 else ""
    model = line.config.model.rstrip("/").rsplit("/", 1)[-1]
    imported = f", from {line.origin}" if line.origin is not None else ""
    return (
        str(line.id),
        line.started_at[:16].replace("T", " "),
        line.label(baseline_levels()) + changes,
        line.config.workload,
        model,
        (line.device_name or line.config.device) + imported,
        f"{line.samples:,}",
        "-" if math.isnan(line.tokens_per_s) else f"{mark}{line.tokens_per_s:,.0f}",
        "-" if line.peak_allocated_bytes < 0 else f"{line.peak_allocated_bytes / 2**30:.2f} GiB",
        line.outcome,
    )


def _comparison_cells(line: StoredComparison) -> tuple[str, ...]:
    result = line.result
    told = (
        ("none", "-", "-")
        if result is None
        else (
            str(result["verdict"]),
            f"{result['speedup']:.3f}x ({result['ci_low']:.3f}-{result['ci_high']:.3f})",
            str(result["n_pairs"]),
        )
    )
    runs = ", ".join(map(str, line.run_ids))
    return (str(line.id), line.started_at[:16].replace("T", " "), *line.names, runs, *told)


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Numbers to the right."""
    right = [place for place, title in enumerate(titles) if title in _NUMBERS]
    sys.stdout.write("\n".join(columns((titles, *rows), right=right)) + "\n")
