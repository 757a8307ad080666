"""Whole runs as lines that can be laid over each other: what was measured, over tokens, steps or time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from explorer.results.ring import Columns
from explorer.results.statistics import tokens_per_s

What = Literal["rate", "loss", "step_ms", "memory_gib"]
Over = Literal["tokens", "step", "time_s"]
Values = NDArray[Any]
POINTS = 400
"""Most points of a line; more could not be told apart."""


def line(columns: Columns, what: What, over: Over) -> tuple[Values, Values]:
    """x and y of at most ``POINTS`` points, each the median of its stretch of steps, of memory the largest.

    Both are empty where nothing of it was measured.
    """
    match over:
        case "tokens":
            x = np.cumsum(columns["tokens"])
        case "step" | "time_s":
            x = columns[over]
        case _:
            assert_never(over)
    return reduced(x, _values(columns, what), np.nanmax if what == "memory_gib" else np.nanmedian)


def reduced(x: Values, y: Values, to_one: Callable[[Values], Any]) -> tuple[Values, Values]:
    """At most ``POINTS`` points, each what ``to_one`` makes of its stretch; empty where y has no number at all."""
    if not bool(np.isfinite(y).any()):
        return np.empty(0), np.empty(0)
    edges = np.unique(np.linspace(0, len(x), min(POINTS, len(x)) + 1).astype(int))
    spans = [slice(start, stop) for start, stop in pairwise(edges)]
    heights = [float(to_one(y[span])) if bool(np.isfinite(y[span]).any()) else np.nan for span in spans]
    return np.array([float(x[span].mean()) for span in spans]), np.array(heights)


def _values(columns: Columns, what: What) -> Values:
    match what:
        case "rate":
            return tokens_per_s(columns)
        case "loss":
            return columns["loss"]
        case "step_ms":
            return np.where(columns["step_ms"] > 0, columns["step_ms"], np.nan)
        case "memory_gib":
            peaks = columns["peak_allocated_bytes"]
            sizes = peaks if bool((peaks >= 0).any()) else columns["device_used_bytes"]
            return np.where(sizes >= 0, sizes / 2**30, np.nan)
        case _:
            assert_never(what)
