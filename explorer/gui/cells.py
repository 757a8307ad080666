"""Figures of a row, as CSV has it, in the words of the pages' tables."""

from __future__ import annotations

import math
from collections.abc import Mapping

from explorer.gui.language import from_below, tr
from explorer.gui.palette import NOTHING
from explorer.results.export import Cell


def speedup(row: Mapping[str, Cell], suffix: str) -> str:
    """A row's ratio with its interval and verdict, in words."""
    ratio, low, high = (row[f"{name}{suffix}"] for name in ("speedup", "ci_low", "ci_high"))
    if ratio is None:
        return tr("failed") if row["problem"] and not suffix else NOTHING
    return f"{ratio:.3f}x ({low:.3f} – {high:.3f}) {from_below(str(row[f'verdict{suffix}']))}"


def mfu(row: Mapping[str, Cell]) -> str:
    """A row's utilization of what was measured here, else of what is published, else TFLOP/s."""
    if row["mfu_measured"] is not None:
        return f"{row['mfu_measured']:.1%}"
    if row["mfu_published"] is not None:
        return tr("{share} of published", share=f"{row['mfu_published']:.1%}")
    return NOTHING if row["tflop_per_s"] is None else f"{row['tflop_per_s']:.3g} TFLOP/s"


def millijoules(row: Mapping[str, Cell]) -> str:
    """A row's energy a token in mJ."""
    joules = number(row["joules_per_token"])
    return NOTHING if math.isnan(joules) else f"{joules * 1e3:.2f}"


def number(cell: Cell) -> float:
    """What ``cell`` says in figures; nan where nothing was measured."""
    return float(cell) if isinstance(cell, (int, float)) else math.nan
