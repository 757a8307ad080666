"""Runs from the CSV that ``export.write_segments`` wrote, one row a segment: what another machine measured.

It holds no steps: each segment keeps the figures that its row gives, and nothing of it can be drawn as a curve.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from explorer.config import RunConfig
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import FORMULA, SUMMARY_HEADERS, VERSIONS
from explorer.results.log import Outcome, RunRecord, SegmentRecord
from explorer.results.sample import NAN, RESUMED, Segment
from explorer.results.statistics import SegmentSummary

LARGEST_BYTES = 64 * 2**20
_NEEDED = ("run", "segment", "workload", "model", "device", "tokens_per_s_median", "started_at", "outcome")
_BESIDES = ("label", "device_name", "cached_bytes", "tflop_per_s", "mfu_measured", "mfu_published", "driver")
_ENDS = ("problem", "notes", "changes", "abandoned")
_SETTINGS = {field.name: field for field in dataclasses.fields(RunConfig) if field.name != "levels"}
_FIGURES = {SUMMARY_HEADERS.get(field.name, field.name): field for field in dataclasses.fields(SegmentSummary)}
# Two other tables of this explorer, by columns that only they have, and what of them can be taken in instead.
_OTHERS = {
    "step": "it has one row a step; import the CSV with one row a segment (Export runs), or a bundle",
    "speedup": "it is a comparison; import the CSV of its runs, or a bundle, which holds both",
}

Row = Mapping[str, str]


def read_runs(path: Path, *, toggles: Mapping[str, str]) -> tuple[RunRecord, ...]:
    """The runs in the CSV at ``path``, in its order, with the numbers that they had.

    The same run read again has the same ``uid``. Columns that an older explorer did not write yet may be missing.

    Args:
        path: the file.
        toggles: each toggle's first level by its name.
    Raises:
        ValueError: it is not there, no such CSV, or a cell of it is not allowed; the message says which.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        if path.stat().st_size > LARGEST_BYTES:
            raise ValueError("it is larger than any CSV of runs")
        rows = _rows(path.read_text("utf-8-sig"), toggles)
        groups = [list(of) for _, of in itertools.groupby(rows, key=lambda numbered: numbered[1]["run"])]
        runs = tuple(_run(of, toggles) for of in groups)
        for run in runs:
            run.reference = runs[0].config
        return runs
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise ValueError(f"{path} is no CSV of runs, or damaged: {error}") from error


def _rows(text: str, toggles: Mapping[str, str]) -> list[tuple[int, Row]]:
    """Each row as cells by column, with its number in the file as a spreadsheet counts."""
    lines = list(csv.reader(text.splitlines(keepends=True), strict=True))
    header = lines[0] if lines else []
    for name, words in _OTHERS.items():
        if name in header:
            raise ValueError(words)
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise ValueError(f"it lacks the columns {', '.join(missing)}")
    if len(set(header)) < len(header):
        raise ValueError("a column is there twice")
    known = {"run", "segment", "started_at", "outcome", *_BESIDES, *_ENDS, *_SETTINGS, *_FIGURES, *VERSIONS, *toggles}
    unknown = sorted(set(header) - known)
    if unknown:
        raise ValueError(f"it has columns unknown here: {', '.join(unknown)}; update this explorer")
    rows: list[tuple[int, Row]] = []
    for number, cells in enumerate(lines[1:], start=2):
        if len(cells) != len(header):
            raise ValueError(f"row {number} has {len(cells)} cells, its header {len(header)}")
        rows.append((number, dict(zip(header, map(_plain, cells), strict=True))))
    if not rows:
        raise ValueError("it holds no run")
    seen = [(row["run"], row["segment"]) for _, row in rows]
    if len(set(seen)) < len(seen):
        raise ValueError("a segment is there twice")
    return rows


def _plain(cell: str) -> str:
    """The cell without the mark that keeps a spreadsheet from running it as a formula."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _run(rows: Sequence[tuple[int, Row]], toggles: Mapping[str, str]) -> RunRecord:
    segments: list[SegmentRecord] = []
    next_step, abandoned_from = 0, None
    for number, row in rows:
        try:
            changes = _list(row, "changes")
            if changes == [RESUMED] and abandoned_from is not None:
                next_step, abandoned_from = abandoned_from, None
            kept = _segment(row, toggles, first_step=next_step, changes=changes)
            if _flag(row, "abandoned") and abandoned_from is None:
                abandoned_from = next_step
            outcome, run_id = _outcome(row["outcome"]), _whole(row, "run")
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        segments.append(kept)
        next_step += kept.figures.steps if kept.figures is not None else 0
    problem = row.get("problem") or None
    if outcome == "running":
        outcome, problem = "incomplete", "it was going when it was exported"
    return RunRecord(
        run_id=run_id,
        # Of what the rows say but for the run's number, which a store gives anew.
        uid=_digest([{**row, "run": ""} for _, row in rows]),
        started_at=segments[0].segment.started_at,
        config=segments[0].config,
        reference=segments[0].config,
        environment=_environment(rows[0][1]),
        segments=segments,
        outcome=outcome,
        problem=problem,
        notes=_list(row, "notes"),
    )


def _digest(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:32]


def _outcome(cell: str) -> Outcome:
    for outcome in get_args(Outcome):
        if cell == outcome:
            return outcome  # type: ignore[no-any-return]
    raise ValueError(f"outcome is {cell!r}; allowed: {', '.join(get_args(Outcome))}")


def _list(row: Row, name: str) -> list[str]:
    cell = row.get(name, "")
    return cell.split("; ") if cell else []


def _flag(row: Row, name: str) -> bool:
    """Spreadsheets write TRUE and FALSE."""
    cell = row.get(name, "").lower()
    if cell not in ("", "false", "true"):
        raise ValueError(f"{name} is {row[name]!r}; allowed: true, false")
    return cell == "true"


def _segment(row: Row, toggles: Mapping[str, str], *, first_step: int, changes: Sequence[str]) -> SegmentRecord:
    settings = {name: _setting(name, row[name]) for name in _SETTINGS if name in row}
    levels = {name: row[name] for name, first in toggles.items() if row.get(name, first) not in ("", first)}
    figures = _figures(row)
    rate, tflop, mfu = figures.tokens_per_s_median, _number(row, "tflop_per_s"), _number(row, "mfu_measured")
    counted = math.isfinite(tflop) and rate > 0
    segment = Segment(
        index=_whole(row, "segment"),
        first_step=first_step,
        changes=tuple(changes),
        started_at=row["started_at"],
        flop_per_token=tflop * 1e12 / rate if counted else None,
        ceiling_tflop_per_s=tflop / mfu if counted and mfu > 0 else None,
    )
    return SegmentRecord(segment=segment, config=RunConfig.from_dict({**settings, "levels": levels}), figures=figures)


def _setting(name: str, cell: str) -> Any:
    default = _SETTINGS[name].default
    if isinstance(default, tuple):
        try:
            return json.loads(cell) if cell else []
        except json.JSONDecodeError as error:
            raise ValueError(f"{name} is {cell!r}; it must be a JSON list of strings") from error
    if isinstance(default, str):
        return cell
    try:
        return int(cell) if isinstance(default, int) else float(cell)
    except ValueError as error:
        raise ValueError(f"{name} is {cell!r}; it must be a number") from error


def _figures(row: Row) -> SegmentSummary:
    """What the row's steps came to; of what it does not have, that it was not measured."""
    values: dict[str, Any] = {}
    for header, field in _FIGURES.items():
        if field.type == "bool":
            values[field.name] = _flag(row, header)
            continue
        number = _number(row, header)
        if field.type == "float":
            values[field.name] = number
        elif math.isinf(number):
            raise ValueError(f"{header} is {row[header]!r}; it must be finite")
        elif math.isfinite(number):
            values[field.name] = int(number)
        else:
            values[field.name] = None if "None" in field.type else -1 if field.name.endswith("_bytes") else 0
    return SegmentSummary(**values)


def _number(row: Row, name: str) -> float:
    """NaN where it was not measured."""
    cell = row.get(name, "")
    try:
        return float(cell) if cell else NAN
    except ValueError as error:
        raise ValueError(f"{name} is {cell!r}; it must be a number") from error


def _whole(row: Row, name: str) -> int:
    try:
        return int(row[name])
    except ValueError as error:
        raise ValueError(f"{name} is {row[name]!r}; it must be a whole number") from error


def _environment(row: Row) -> Environment | None:
    """What the row says of the machine; None where it names no device."""
    name, id = row.get("device_name", ""), row["device"]
    if not name:
        return None
    versions: dict[str, Any] = {of: row.get(of) or None for of in VERSIONS}
    for required in ("python", "platform", "explorer"):
        versions[required] = versions[required] or "unknown"
    driver = row.get("driver") or None
    device = DeviceInfo(id=id, kind="cpu" if id == "cpu" else "cuda", name=name, total_memory_bytes=0, driver=driver)
    return Environment(devices=(device,), driver=driver, **versions)
