"""Samples as numpy columns: cheap to append to, ready to be drawn and counted, bounded in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from explorer.results.sample import Phase, Sample

Columns = Mapping[str, NDArray[Any]]

PHASES: tuple[Phase, ...] = get_args(Phase)
"""The column ``phase`` holds positions in this tuple."""

PHASE_CODES: Mapping[Phase, int] = {phase: code for code, phase in enumerate(PHASES)}

_DTYPES: Mapping[str, type[np.generic]] = {"int": np.int64, "float": np.float64, "bool": np.bool_, "Phase": np.uint8}

DTYPES: Mapping[str, type[np.generic]] = {field.name: _DTYPES[str(field.type)] for field in dataclasses.fields(Sample)}
"""One column a field of ``Sample``, in its order."""

_values_of: Callable[[Sample], tuple[Any, ...]] = attrgetter(*DTYPES)
_PHASE_COLUMN = list(DTYPES).index("phase")


def as_columns(samples: Sequence[Sample]) -> dict[str, NDArray[Any]]:
    """The samples as one new array a field of ``Sample``; ``phase`` as positions in ``PHASES``."""
    fields: list[Sequence[Any]] = list(zip(*map(_values_of, samples), strict=True)) or [()] * len(DTYPES)
    fields[_PHASE_COLUMN] = [PHASE_CODES[phase] for phase in fields[_PHASE_COLUMN]]
    return {name: np.array(values, dtype=dtype) for (name, dtype), values in zip(DTYPES.items(), fields, strict=True)}


class SampleColumns:
    """The samples of one run, oldest first, one numpy column a field of ``Sample``.

    Grows by doubling to ``capacity`` rows; after that an eighth of them, the oldest, is dropped at a time.

    Args:
        capacity: most rows held. A row is 178 bytes.
        dropping: called with the columns about to be dropped, so that sums over a whole run can stay right.
    """

    def __init__(self, *, capacity: int = 1_000_000, dropping: Callable[[Columns], None] | None = None) -> None:
        if capacity < 8:
            raise ValueError(f"capacity is {capacity}; it must be at least 8")
        self._capacity = capacity
        self._dropping = dropping
        self._length = 0
        self._dropped = 0
        self._buffers = {name: np.empty(min(1024, capacity), dtype) for name, dtype in DTYPES.items()}

    def __len__(self) -> int:
        return self._length

    @property
    def dropped(self) -> int:
        """Rows dropped so far: row i of a column is the run's sample number ``dropped + i``."""
        return self._dropped

    def append(self, samples: Sequence[Sample]) -> None:
        """Add the samples at the end."""
        self.extend(as_columns(samples))

    def extend(self, columns: Columns) -> None:
        """Add whole columns at the end, as ``as_columns`` makes them."""
        total = len(columns["step"])
        # More than a block at once goes in piece by piece: room is only ever made a block at a time.
        block = max(1, self._capacity // 8)
        for start in range(0, total, block):
            count = min(block, total - start)
            self._make_room(count, block)
            for name, buffer in self._buffers.items():
                buffer[self._length : self._length + count] = columns[name][start : start + count]
            self._length += count

    def column(self, name: str) -> NDArray[Any]:
        """The column of one field of ``Sample``, as a read-only view that holds until the next append.

        Raises:
            ValueError: no such column; the message lists those there are.
        """
        if name not in self._buffers:
            raise ValueError(f"no column is called {name!r}; allowed: {', '.join(self._buffers)}")
        view = self._buffers[name][: self._length]
        view.flags.writeable = False
        return view

    def columns(self, rows: slice = slice(None)) -> Columns:
        """Every column of these rows, as views that hold until the next append."""
        return {name: self.column(name)[rows] for name in self._buffers}

    def rows_of(self, segment: int) -> slice:
        """Where the samples of segment ``segment`` lie; empty where there are none."""
        # Segments follow each other within a run, so the column is sorted.
        numbers = self.column("segment")
        start, stop = np.searchsorted(numbers, [segment, segment + 1])
        return slice(int(start), int(stop))

    def _make_room(self, count: int, block: int) -> None:
        if self._length + count > self._capacity:
            if self._dropping is not None:
                self._dropping(self.columns(slice(0, block)))
            for buffer in self._buffers.values():
                buffer[: self._length - block] = buffer[block : self._length]
            self._length -= block
            self._dropped += block
        held = len(self._buffers["step"])
        if self._length + count > held:
            wanted = min(self._capacity, max(2 * held, self._length + count))
            for name, old in self._buffers.items():
                self._buffers[name] = np.empty(wanted, old.dtype)
                self._buffers[name][: self._length] = old[: self._length]
