"""A bundle: one file that carries runs to another machine, samples and environment included.

A zip archive of ``runs.json`` (configurations, environment, text, outcome, and the blocks of comparisons),
``segments.csv`` (for people: one row a segment) and ``samples.csv`` (one row a step, every digit kept).
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from explorer.results.atomic import replaced
from explorer.results.comparison_record import ComparisonRecord, comparison_from_dict, comparison_to_dict
from explorer.results.export import segment_rows, text_writer, write_rows, write_sample_rows
from explorer.results.log import RunRecord
from explorer.results.record_json import record_from_dict, record_to_dict
from explorer.results.ring import DTYPES, PHASE_CODES, Columns
from explorer.results.sample import NAN
from explorer.results.schema import DEFAULTS

FORMAT = "gpt2-explorer bundle"
VERSION = 1
_LARGEST_JSON_BYTES = 256 * 2**20
_BLOCK_ROWS = 10_000
# What zipfile, json and csv raise at a file that is none of ours or was damaged on its way.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
    EOFError,
    KeyError,
    IndexError,
    OverflowError,
    RuntimeError,  # of which NotImplementedError (an unknown compression) and RecursionError are kinds
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a bundle holds."""

    runs: tuple[RunRecord, ...]
    """With the numbers that they had. Those that were going when they were written are incomplete."""
    comparisons: tuple[ComparisonRecord, ...]


def write_bundle(
    path: Path,
    records: Sequence[RunRecord],
    comparisons: Sequence[ComparisonRecord] = (),
    *,
    toggles: Mapping[str, str],
) -> None:
    """Write these runs to ``path``, atomically.

    Args:
        path: the file.
        records: the runs, each with its own ``run_id``.
        comparisons: those between these runs.
        toggles: each toggle's first level by its name, in the order of the CSV's columns.
    Raises:
        ValueError: no run, two with one number, or ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    numbers = [record.run_id for record in records]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"runs are {numbers}; a bundle needs at least one, and each number once")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "runs": [{"run": record.run_id, **record_to_dict(record)} for record in records],
        "comparisons": [comparison_to_dict(comparison) for comparison in comparisons],
    }
    with replaced(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("runs.json", json.dumps(content, indent=1))
        with archive.open("segments.csv", "w") as entry, text_writer(entry) as text:
            write_rows(text, segment_rows(records, toggles=toggles))
        with archive.open("samples.csv", "w", force_zip64=True) as entry, text_writer(entry) as text:
            write_sample_rows(text, records)


def read_bundle(path: Path) -> Bundle:
    """What is in the bundle at ``path``.

    Raises:
        ValueError: it is not there, no bundle, damaged or of a newer version; the message says which.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError("it is a pipe or a device")
        with zipfile.ZipFile(path) as archive:
            records, comparisons = _read_json(archive)
            with archive.open("samples.csv") as entry:
                for number, columns in _read_samples(entry):
                    records[number].columns.extend(columns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise ValueError(f"{path} is no bundle, or damaged: {error or type(error).__name__}") from error
    return Bundle(runs=tuple(records.values()), comparisons=comparisons)


def _read_json(archive: zipfile.ZipFile) -> tuple[dict[int, RunRecord], tuple[ComparisonRecord, ...]]:
    if archive.getinfo("runs.json").file_size > _LARGEST_JSON_BYTES:
        raise ValueError("its runs.json is larger than any that is written")
    content: Any = json.loads(archive.read("runs.json"))
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}")
    if content["version"] != VERSION:
        raise ValueError(f"its version is {content['version']!r}, this explorer reads {VERSION}; update this one")
    records = {int(values["run"]): record_from_dict(values, run_id=int(values["run"])) for values in content["runs"]}
    for record in records.values():
        if record.outcome == "running":
            record.outcome, record.problem = "incomplete", "it was going when it was exported"
    comparisons = tuple(comparison_from_dict(values) for values in content.get("comparisons", ()))
    uids = {record.uid for record in records.values()}
    for comparison in comparisons:
        if not uids.issuperset(comparison.run_uids):
            raise ValueError("a comparison is of runs that it does not hold")
    return records, comparisons


def _read_samples(entry: IO[bytes]) -> Iterator[tuple[int, Columns]]:
    """Consecutive rows of one run at a time, as columns."""
    rows = csv.reader(io.TextIOWrapper(entry, encoding="utf-8", newline=""), strict=True)
    header = next(rows)
    # What another version did not measure yet may be missing; the rest must be there.
    missing = {name: DEFAULTS[name] for name in DTYPES if name not in header}
    places = {name: header.index(name) for name in ("run", *DTYPES) if name not in missing}
    for number, of_run in itertools.groupby(rows, key=lambda row: row[places["run"]]):
        while block := list(itertools.islice(of_run, _BLOCK_ROWS)):
            cells = list(zip(*block, strict=True))
            yield (
                int(number),
                {
                    name: np.full(len(block), missing[name], dtype)
                    if name in missing
                    else np.array(_values(name, cells[places[name]]), dtype)
                    for name, dtype in DTYPES.items()
                },
            )


def _values(name: str, cells: Sequence[str]) -> list[Any]:
    """What ``export`` wrote as these cells; an empty one was not measured."""
    if name == "phase":
        codes: Mapping[str, int] = {str(phase): code for phase, code in PHASE_CODES.items()}
        return [codes[cell] for cell in cells]
    if DTYPES[name] is np.bool_:
        return [("false", "true").index(cell) for cell in cells]
    if DTYPES[name] is np.float64:
        return [float(cell) if cell else NAN for cell in cells]
    return [int(cell) if cell else -1 for cell in cells]
