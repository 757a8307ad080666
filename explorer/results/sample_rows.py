"""Samples as the rows of an SQLite table, and back to numpy columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from explorer.results.ring import DTYPES, PHASE_CODES, PHASES, Columns, SampleColumns
from explorer.results.schema import DEFAULTS, sample_columns

_BLOCK_ROWS = 10_000


def write_samples(connection: sqlite3.Connection, run: int, columns: SampleColumns, *, after: int) -> None:
    """Add the samples of ``columns`` from the run's sample number ``after`` on."""
    names = ("run", "position", *DTYPES)
    insert = f"INSERT INTO samples ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    for start in range(max(0, after - columns.dropped), len(columns), _BLOCK_ROWS):
        block = columns.columns(slice(start, start + _BLOCK_ROWS))
        connection.executemany(insert, _rows(run, columns.dropped + start, block))


def read_samples(connection: sqlite3.Connection, run: int) -> Iterator[Columns]:
    """The samples of run ``run``, in order, block by block.

    Raises:
        KeyError, TypeError, ValueError: what is there makes no sense.
    """
    there = [name for name in sample_columns(connection) if name in DTYPES]
    rows = connection.execute(f"SELECT {', '.join(there)} FROM samples WHERE run = ? ORDER BY position", (run,))
    while block := rows.fetchmany(_BLOCK_ROWS):
        values: dict[str, Sequence[Any]] = dict(zip(there, zip(*block, strict=True), strict=True))
        values["phase"] = tuple(PHASE_CODES[phase] for phase in values["phase"])
        values |= {name: [DEFAULTS[name]] * len(block) for name in DTYPES if name not in values}
        # numpy reads None, SQLite's NULL, as NaN.
        yield {name: np.array(values[name], dtype=dtype) for name, dtype in DTYPES.items()}


def _rows(run: int, first: int, columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Samples as SQLite takes them: phases by name; NaN becomes NULL by itself."""
    values = [columns[name].tolist() for name in DTYPES]
    phase = list(DTYPES).index("phase")
    values[phase] = [PHASES[code] for code in values[phase]]
    return ((run, first + i, *row) for i, row in enumerate(zip(*values, strict=True)))
