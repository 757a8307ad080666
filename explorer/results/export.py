"""Segments and samples as rows, and rows as CSV that pandas and spreadsheets read alike."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from explorer.config import RunConfig
from explorer.results import memory
from explorer.results.atomic import replaced
from explorer.results.environment import Environment
from explorer.results.flops import utilization
from explorer.results.log import RunRecord
from explorer.results.ring import DTYPES, PHASES
from explorer.results.statistics import tokens_per_s

Cell = str | int | float | bool | None
"""None: not measured, or not so on this machine."""

# Columns of a configuration that come before the toggles; the rest of RunConfig follows them.
_WHAT = ("workload", "model", "weights", "device")
SUMMARY_HEADERS = {"warmup_steps": "warmup"}
VERSIONS = ("torch", "triton", "transformers", "cuda", "cudnn", "python", "platform", "explorer")
# A cell that begins so is run as a formula by spreadsheets.
# Source: OWASP, "CSV Injection".
FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BLOCK_ROWS = 10_000


def segment_row(record: RunRecord, segment: int, *, toggles: Mapping[str, str]) -> dict[str, Cell]:
    """One segment as a row: identity, configuration, statistics, machine; units in the names.

    Args:
        record: the run.
        segment: the segment's index.
        toggles: each toggle's first level by its name, in column order.
    Raises:
        ValueError: no such segment.
    """
    kept = record.segment(segment)
    config, environment = kept.config, record.environment
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(RunConfig)}
    del settings["levels"]
    for name in ("stop", "more_prompts"):
        settings[name] = json.dumps(settings[name], ensure_ascii=False) if settings[name] else ""
    row: dict[str, Any] = {"run": record.run_id, "segment": segment, "label": record.label(segment, toggles)}
    row |= {name: settings.pop(name) for name in _WHAT}
    row["device_name"] = device_name(environment, config)
    for name, first in toggles.items():
        assert name not in row | settings, f"toggle {name} has the name of another column"
        row[name] = config.level(name) or first
    row |= settings
    figures = dataclasses.asdict(record.summary(segment))
    row |= {SUMMARY_HEADERS.get(name, name): value for name, value in figures.items()}
    peak, held = figures["peak_allocated_bytes"], figures["reserved_bytes"]
    row["cached_bytes"] = held - peak if peak >= 0 and held >= 0 and config.device != "cpu" else None
    done = utilization(kept.segment, figures["tokens_per_s_median"], row["device_name"])
    row |= {"tflop_per_s": done.tflop_per_s, "mfu_measured": done.measured, "mfu_published": done.published}
    row["driver"] = _device(environment, config, "driver") or (environment and environment.driver)
    row |= {name: environment and getattr(environment, name) for name in VERSIONS}
    row["started_at"] = kept.segment.started_at
    row["outcome"] = record.outcome
    row["problem"] = record.problem
    row["notes"] = "; ".join(record.notes)
    row["changes"] = "; ".join(kept.segment.changes)
    row["abandoned"] = record.abandoned(segment)
    return {name: _measured(name, value) for name, value in row.items()}


def device_name(environment: Environment | None, config: RunConfig) -> str | None:
    """What the device of ``config`` is called, or None where that is not known."""
    return _device(environment, config, "name")


def segment_rows(records: Iterable[RunRecord], *, toggles: Mapping[str, str]) -> list[dict[str, Cell]]:
    """A row a segment of every run, in order; see ``segment_row``."""
    return [segment_row(record, kept.segment.index, toggles=toggles) for record in records for kept in record.segments]


def write_segments(path: Path, records: Iterable[RunRecord], *, toggles: Mapping[str, str]) -> None:
    """Write one row a segment to ``path``, as CSV (RFC 4180, UTF-8), atomically.

    Raises:
        ValueError: there is no segment to write, or ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    rows = segment_rows(records, toggles=toggles)
    if not rows:
        raise ValueError("there is nothing to export yet; run something first")
    write_table(path, rows)


def write_table(path: Path, rows: Sequence[Mapping[str, Cell]]) -> None:
    """Write rows of equal keys to ``path``, as CSV (RFC 4180, UTF-8), atomically.

    Raises:
        ValueError: ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    with replaced(path) as file, text_writer(file) as text:
        write_rows(text, rows)


def write_rows(file: io.TextIOWrapper, rows: Sequence[Mapping[str, Cell]]) -> None:
    """Write rows of equal keys as CSV with a header; nothing of no rows."""
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerows(rows[:1])
    for row in rows:
        writer.writerow([_cell(value) for value in row.values()])


def write_samples(path: Path, records: Iterable[RunRecord]) -> None:
    """Write one row a step to ``path``, as CSV (RFC 4180, UTF-8), atomically.

    Raises:
        ValueError: ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    with replaced(path) as file, text_writer(file) as text:
        write_sample_rows(text, records)


def write_sample_rows(file: io.TextIOWrapper, records: Iterable[RunRecord]) -> None:
    """Write one row a step as CSV with a header."""
    writer = csv.writer(file, lineterminator="\r\n")
    # Which step it was comes first, as a person reads it; the rest in the order of Sample.
    names = ["segment", "step", *(name for name in DTYPES if name not in ("segment", "step"))]
    writer.writerow(["run", *names, "tokens_per_s", "cached_bytes", "memory_unexplained_bytes", "abandoned"])
    for record in records:
        abandoned = [kept.segment.index for kept in record.segments if record.abandoned(kept.segment.index)]
        on_cpu = any(kept.config.device == "cpu" for kept in record.segments)
        for start in range(0, len(record.columns), _BLOCK_ROWS):
            columns = record.columns.columns(slice(start, start + _BLOCK_ROWS))
            cells = [_cells(name, columns[name]) for name in names]
            cells.append(_cells("tokens_per_s", tokens_per_s(columns)))
            # On the CPU there is no allocator with a cache: what it holds is the worker's resident memory.
            cells.append([""] * len(cells[0]) if on_cpu else _whole(memory.cached_bytes(columns)))
            cells.append(_whole(memory.unexplained_bytes(columns)))
            cells.append([_cell(gone) for gone in np.isin(columns["segment"], abandoned).tolist()])
            writer.writerows((record.run_id, *row) for row in zip(*cells, strict=True))


@contextmanager
def text_writer(file: IO[bytes]) -> Iterator[io.TextIOWrapper]:
    """``file`` to be written as UTF-8 text without change of line ends; it stays open."""
    # A file name that is no UTF-8 must not cost the export: its odd bytes become question marks.
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    try:
        yield text
    finally:
        text.detach()


def _cells(name: str, column: NDArray[Any]) -> list[Any]:
    """The cells of a whole column; numbers that were all measured, the most of them, go in as they are."""
    values: list[Any] = column.tolist()
    if name == "phase":
        return [PHASES[code] for code in values]
    if column.dtype == np.float64 and not np.isnan(column).any():
        return values
    return [_cell(_measured(name, value)) for value in values]


def _whole(sizes: NDArray[np.float64]) -> list[int | str]:
    """Sizes as whole numbers of bytes; those not measured as empty cells."""
    return ["" if math.isnan(size) else int(size) for size in sizes.tolist()]


def _cell(value: Cell) -> str | int | float:
    """What csv.writer is given: it writes an int or float with every digit (repr)."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    return value


def _measured(name: str, value: Any) -> Cell:
    """``value``, or None for the marks of what was not measured: NaN, and -1 bytes."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if name.endswith("_bytes") and value == -1:
        return None
    return value  # type: ignore[no-any-return]


def _device(environment: Environment | None, config: RunConfig, field: str) -> str | None:
    if environment is None:
        return None
    try:
        return getattr(environment.device(config.device), field)  # type: ignore[no-any-return]
    except ValueError:
        return None  # A device that was asked for and is not there: its run failed, and says so.
