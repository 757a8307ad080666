"""Long series brought down to what a screen can show: extremes a pixel, and medians of short windows.

Both work on rows that have come since the last call only, so a redraw costs the same after an hour as at the start.
Times are seconds, ascending. ``dropped`` counts the rows that the store has let go at its front: row numbers count
from the run's first row, kept or not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = Callable[[slice], Floats]
"""Gives the series' values at a slice of the rows that are kept."""


class Envelope:
    """Lowest and highest value in each of ``bins`` equal stretches of a time range."""

    def __init__(self) -> None:
        self._range: tuple[float, float, int] | None = None
        self._low: Floats = np.empty(0)
        self._high: Floats = np.empty(0)
        self._seen_rows = 0

    def points(
        self, time_s: Floats, values: Values, *, dropped: int, low_s: float, high_s: float, bins: int
    ) -> tuple[Floats, Floats]:
        """Points of a line through [low_s, high_s]: the rows themselves while there are at most two a bin, else
        the lowest and the highest of each bin, so that no outlier is lost. One row more at either end leads the
        line out of the picture. NaN are passed over.
        """
        first = max(int(np.searchsorted(time_s, low_s)) - 1, 0)
        last = min(int(np.searchsorted(time_s, high_s, side="right")) + 1, len(time_s))
        if last - first <= 2 * bins:
            # Copies: the store moves its rows when it lets old ones go.
            return time_s[first:last].copy(), values(slice(first, last)).copy()
        wanted = (low_s, high_s, bins)
        if wanted != self._range or not dropped + first <= self._seen_rows <= dropped + last:
            self._range = wanted
            self._low = np.full(bins, np.nan)
            self._high = np.full(bins, np.nan)
            self._seen_rows = dropped + first
        new = slice(self._seen_rows - dropped, last)
        self._seen_rows = dropped + last
        if new.start < new.stop:
            self._fold(time_s[new], values(new), low_s, high_s, bins)
        filled = np.flatnonzero(~np.isnan(self._low))
        middle_s = low_s + (filled + 0.5) * (high_s - low_s) / bins
        return np.repeat(middle_s, 2), np.column_stack((self._low[filled], self._high[filled])).ravel()

    def _fold(self, time_s: Floats, values: Floats, low_s: float, high_s: float, bins: int) -> None:
        edges = np.searchsorted(time_s, np.linspace(low_s, high_s, bins + 1))
        edges[0], edges[-1] = 0, len(time_s)
        filled = np.flatnonzero(np.diff(edges))
        starts = edges[filled]
        self._low[filled] = np.fmin(self._low[filled], np.fmin.reduceat(values, starts))
        self._high[filled] = np.fmax(self._high[filled], np.fmax.reduceat(values, starts))


class WindowMedians:
    """The median of a series in each window of ``window_s``, never across a change of segment."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._time_s: Floats = np.empty(1024)
        self._median: Floats = np.empty(1024)
        self._closed = 0
        self._seen_rows = 0

    def points(self, time_s: Floats, segment: NDArray[Any], values: Values, *, dropped: int) -> tuple[Floats, Floats]:
        """(time of the last row, median) of every window so far, the last one as far as it has come."""
        first = max(self._seen_rows - dropped, 0)
        if first >= len(time_s):
            return self._time_s[: self._closed].copy(), self._median[: self._closed].copy()
        window = np.floor(time_s[first:] / self._window_s)
        new_window = (np.diff(window) != 0) | (np.diff(segment[first:]) != 0)
        starts = np.concatenate(([0], np.flatnonzero(new_window) + 1, [len(window)]))
        fresh = values(slice(first, len(time_s)))
        self._reserve(self._closed + len(starts) - 1)
        for i, (start, stop) in enumerate(pairwise(starts.tolist()), start=self._closed):
            self._time_s[i] = time_s[first + stop - 1]
            self._median[i] = np.median(fresh[start:stop])
        shown = self._closed + len(starts) - 1
        self._closed = shown - 1  # the last window may still grow
        self._seen_rows = dropped + first + int(starts[-2])
        return self._time_s[:shown].copy(), self._median[:shown].copy()

    def _reserve(self, size: int) -> None:
        if size > len(self._time_s):
            room = max(size, 2 * len(self._time_s))
            self._time_s = np.resize(self._time_s, room)
            self._median = np.resize(self._median, room)
