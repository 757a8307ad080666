"""A file with runs from another machine, of whichever kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from explorer.results.bundle import Bundle, read_bundle
from explorer.results.runs_csv import read_runs


def read_any(path: Path, *, toggles: Mapping[str, str]) -> Bundle:
    """What is in the bundle at ``path``; where its name ends in .csv, the runs of that CSV.

    Args:
        path: the file.
        toggles: each toggle's first level by its name.
    Raises:
        ValueError: it is not there, or cannot be read as what it should be; the message says which.
    """
    if path.suffix.lower() == ".csv":
        return Bundle(runs=read_runs(path, toggles=toggles), comparisons=())
    return read_bundle(path)
