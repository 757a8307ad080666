"""Axes whose ticks read as people say them: 50k, 8 GiB, 2:30; and the ranges that they end on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import QRectF

from explorer.gui.palette import si_number
from explorer.gui.wording import keep

_TIME_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_TIME_ENDS_S = (1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1200, 1800, 2700, 3600)

EDGE_PX = 20
"""Room beside an axis for the words of its first and last tick."""


def round_up(value: float) -> float:
    """The next of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten: an end for an axis that seldom moves."""
    if not value > 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * (1 - 1e-9)), 10 * power)


def time_end(last_s: float) -> float:
    """Where the time axis ends while a run has come to ``last_s``: it moves rarely, not with every step."""
    hours = 3600.0
    return next((end for end in _TIME_ENDS_S if end >= last_s), hours * math.ceil(last_s / hours * 2) / 2)


def clock(time_s: float, step_s: float) -> str:
    """``time_s`` as a tick: ``0.5 s``, ``90 s``, from two minutes on ``2:30``, then ``1:02:30``."""
    if abs(time_s) < 120 or step_s < 1:
        return f"{time_s:.1f} s" if step_s < 1 else f"{time_s:.0f} s"
    hours, rest = divmod(round(time_s), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class PlainAxis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    """Numbers as they are: never a hidden factor such as "x0.001" in the label."""

    def __init__(self, orientation: str, title: str | None) -> None:
        super().__init__(orientation)
        self.enableAutoSIPrefix(False)
        if orientation == "left":
            self.setTickDensity(0.6)  # in a small window the words of more ticks touch
        # Grid lines and words change seldom, but lie under curves that change ten times a second: drawn anew each
        # time they took two thirds of a redraw.
        self.setCacheMode(pg.GraphicsObject.CacheMode.DeviceCoordinateCache)
        if title is not None:
            keep(self.setLabel, title)

    def boundingRect(self) -> QRectF:
        # Words of the first and the last tick reach beyond the axis; pyqtgraph 0.14 leaves out what does not fit
        # into this rectangle, and makes it too small once grid lines are on.
        rect = QRectF(super().boundingRect())
        if self.orientation == "left":
            return rect.adjusted(0, -EDGE_PX / 2, 0, EDGE_PX / 2)
        return rect.adjusted(-EDGE_PX, 0, EDGE_PX, 0)


class SiAxis(PlainAxis):
    """Large numbers with SI prefixes: 50k, 1.5M."""

    def tickStrings(self, values: Sequence[float], scale: float, spacing: float) -> list[str]:
        return [_without_trailing_zeros(si_number(value)) for value in values]


class LogAxis(PlainAxis):
    """An axis of logarithms to base 10 whose ticks are the numbers themselves, at powers of ``base``.

    ``set_log(False)`` makes it an axis of plain numbers.
    """

    def __init__(self, orientation: str, title: str, *, base: int = 10) -> None:
        super().__init__(orientation, title)
        self._step = math.log10(base)
        self._between = (2, 5) if base == 10 else ()
        self._log = True

    def set_log(self, log: bool) -> None:
        """Whether the values are logarithms."""
        self._log = log
        self.picture = None  # pyqtgraph's own way to have it drawn anew
        self.update()

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        if not self._log:
            plain: list[tuple[float, list[float]]] = super().tickValues(minVal, maxVal, size)
            return plain
        most = max(size / 40, 2)
        step = self._step * max(1, math.ceil((maxVal - minVal) / self._step / most))
        powers = [place * step for place in range(math.floor(minVal / step), math.ceil(maxVal / step) + 1)]
        levels = [(step, powers)]
        if len(powers) < most / 3:
            levels.append((step / 3, [power + math.log10(m) for power in powers for m in self._between]))
        return [(spacing, [v for v in values if minVal <= v <= maxVal]) for spacing, values in levels]

    def tickStrings(self, values: Sequence[float], scale: float, spacing: float) -> list[str]:
        if not self._log:
            plain: list[str] = super().tickStrings(values, scale, spacing)
            return plain
        return [_power(value) for value in values]


class TimeAxis(PlainAxis):
    """Time of the run, ticks at round seconds, minutes and hours; they carry their unit, so it needs no title."""

    def __init__(self) -> None:
        super().__init__("bottom", None)

    def tickSpacing(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, float]]:
        most = max(size / 70, 2)
        step = next((s for s in _TIME_STEPS_S if (maxVal - minVal) / s <= most), _TIME_STEPS_S[-1])
        return [(step, 0.0)]

    def tickStrings(self, values: Sequence[float], scale: float, spacing: float) -> list[str]:
        return [clock(value, spacing) for value in values]


def _power(value: float) -> str:
    """10 to the power of ``value``, from a million on as 1e6."""
    if value < 0:
        return f"{10**value:.3g}"
    value = round(value, 9)
    if value < 6:
        return f"{10**value:,.0f}"
    whole = math.floor(value)
    return f"{10 ** (value - whole):.0f}e{whole}"


def _without_trailing_zeros(number: str) -> str:
    digits = number.rstrip("kMGT")
    if "." in digits:
        return digits.rstrip("0").rstrip(".") + number[len(digits) :]
    return number
