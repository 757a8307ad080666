"""Plots of a row a setting, the first on top: a ladder's waterfall, and the effects of an attribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontMetrics, QResizeEvent

from explorer.gui.axes import PlainAxis, round_up
from explorer.gui.language import tr
from explorer.gui.palette import NOTHING, blend, run_colour, theme
from explorer.gui.still_plot import BOTTOM_AXIS_PX, StillPlot, pen

NAMES_PX = 150
EFFECT_NAMES_PX = 236
NO_NAMES_PX = 12
BAR = 0.6
"""Of the room that a row has."""
FEWEST_ROWS = 4
WORDS_SHARE = 1.3
"""Of the largest bar: the end of the axis, so that there is room for its words."""
MORE_WORDS_SHARE = 1.7
LEAST_RANGE = 0.002
"""On either side of 1."""
POINT_PX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row. Numbers that are not known are NaN."""

    name: str
    words: str = ""
    """What stands behind the bar."""
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    below: float = math.nan
    """Where the coloured part begins: the value of the row before it."""
    floor: float = math.nan
    """The share within which equal rows may seem to differ, drawn around ``below``."""
    bad: bool = False
    """Whether it is drawn as something wrong."""


class RowPlot(StillPlot):
    """A horizontal bar a row. ``unit``: what the axis says; ``limit``: a line that should not be passed."""

    def __init__(
        self,
        *,
        name: str,
        title: str,
        words: str,
        unit: str,
        names_px: int = NO_NAMES_PX,
        limit: float | None = None,
        words_share: float = WORDS_SHARE,
    ) -> None:
        self._names = names_px > NO_NAMES_PX
        self._limit = limit
        self._words_share = words_share
        self._bars: Sequence[Bar] = ()
        self._drawn: list[pg.GraphicsObject] = []
        super().__init__(
            name=name,
            title=title,
            words=words,
            left=lambda: PlainAxis("left", None),
            bottom=lambda: PlainAxis("bottom", unit),
            left_px=names_px,
            grid="x",
        )

    @property
    def bars(self) -> Sequence[Bar]:
        """What is drawn."""
        return self._bars

    def show_bars(self, bars: Sequence[Bar]) -> None:
        """Draw ``bars``, the first on top."""
        self._bars = bars
        self._redraw()

    def _furnish(self) -> None:
        self._axes[1].setZValue(-1)  # its grid lies under the bars

    def _draw(self) -> None:
        bars = self._bars
        for item in self._drawn:
            self.removeItem(item)
        self._drawn = []
        self._show_empty(not bars)
        self._axes[0].setStyle(tickLength=0)  # names need none
        if not bars:
            return
        self._axes[0].setTicks([self._ticks()])
        end = self._end()
        self._draw_bars(end)
        self._view.setRange(xRange=(self._start(), end), yRange=(-max(len(bars), FEWEST_ROWS) + 0.4, 0.6), padding=0)

    def _start(self) -> float:
        return 0.0

    def _end(self) -> float:
        known = [v for bar in self._bars for v in (bar.value, bar.high) if math.isfinite(v)]
        return round_up(self._words_share * max([*known, self._limit or 0.0], default=1.0) or 1.0)

    def _draw_bars(self, end: float) -> None:
        look = theme(self._dark)
        muted = blend(QColor(look.muted), QColor(look.background), 0.35)
        for row, bar in enumerate(self._bars):
            colour = QColor(look.problem) if bar.bad else run_colour(0, self._dark)
            value = end if bar.value == math.inf else bar.value
            if math.isfinite(value):
                below = bar.below if math.isfinite(bar.below) else 0.0
                self._rectangle(0.0, min(below, value), row, muted)
                self._rectangle(min(below, value), max(below, value), row, colour)
            if math.isfinite(bar.below) and bar.floor > 0:
                floor = blend(QColor(look.muted), QColor(look.background), 0.7)
                self._rectangle(bar.below / (1 + bar.floor), bar.below * (1 + bar.floor), row, floor, height=0.9)
            self._whisker(row, bar, QColor(look.text))
            at = max([v for v in (value, bar.high, bar.below) if math.isfinite(v)], default=0.0)
            self._write(bar.words, at, row, QColor(look.problem if bar.bad else look.text))
        if self._limit is not None:
            line = pg.InfiniteLine(pos=self._limit, angle=90, pen=pen(QColor(look.problem), 1.0, Qt.PenStyle.DashLine))
            self._add(line)

    def _rectangle(self, low: float, high: float, row: int, colour: QColor, *, height: float = BAR) -> None:
        if high > low:
            self._add(pg.BarGraphItem(x0=[low], y=[-row], height=height, width=[high - low], brush=colour, pen=None))

    def _whisker(self, row: int, bar: Bar, colour: QColor) -> None:
        if math.isfinite(bar.value) and math.isfinite(bar.low) and math.isfinite(bar.high):
            left, right = _floats(bar.value - bar.low), _floats(bar.high - bar.value)
            x, y = _floats(bar.value), _floats(-row)
            self._add(pg.ErrorBarItem(x=x, y=y, left=left, right=right, beam=0.25, pen=pen(colour, 1.0)))

    def _write(self, words: str, x: float, row: int, colour: QColor) -> None:
        if words and self._row_px() >= QFontMetrics(self.font()).height():
            item = pg.TextItem(f" {words}", color=colour, anchor=(0, 0.5))
            item.setPos(x, -row)
            self._add(item)

    def _add(self, item: pg.GraphicsObject) -> None:
        self._drawn.append(item)
        self.addItem(item, ignoreBounds=True)

    def _ticks(self) -> list[tuple[int, str]]:
        metrics = QFontMetrics(self.font())
        room = self._left_px - 20
        each = math.ceil(metrics.height() / self._row_px())  # names would lie over one another where rows are low
        # The end of a name tells neighbours apart: toggles are added one by one.
        return [
            (-row, metrics.elidedText(bar.name, Qt.TextElideMode.ElideLeft, room) if self._names else "")
            for row, bar in enumerate(self._bars)
            if row % each == 0
        ]

    def _row_px(self) -> float:
        return float(max(self.height() - BOTTOM_AXIS_PX, 1)) / max(len(self._bars), FEWEST_ROWS)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._redraw()


class EffectsPlot(RowPlot):
    """Points with their intervals around 1, over the band within which equal arms may seem to differ."""

    def _start(self) -> float:
        low, high = self._range()
        return low - 0.1 * (high - low)

    def _end(self) -> float:
        low, high = self._range()
        return high + (MORE_WORDS_SHARE - 1) * (high - low)

    def _range(self) -> tuple[float, float]:
        """From the lowest end of an interval to the highest, 1 and the floor included."""
        known = [v for bar in self._bars for v in (bar.value, bar.low, bar.high) if math.isfinite(v)]
        floor = max((bar.floor for bar in self._bars if math.isfinite(bar.floor)), default=0.0)
        return min([*known, 1 / (1 + floor), 1 - LEAST_RANGE]), max([*known, 1 + floor, 1 + LEAST_RANGE])

    def _draw_bars(self, end: float) -> None:
        look = theme(self._dark)
        floor = max((bar.floor for bar in self._bars if math.isfinite(bar.floor)), default=0.0)
        band = pg.LinearRegionItem((1 / (1 + floor), 1 + floor), movable=False)
        band.setBrush(blend(QColor(look.muted), QColor(look.background), 0.3))
        for edge in band.lines:
            edge.setPen(pen(blend(QColor(look.muted), QColor(look.background), 0.6), 1.0))
        self._add(band)
        self._add(pg.InfiniteLine(pos=1.0, angle=90, pen=pen(QColor(look.muted), 1.0, Qt.PenStyle.DashLine)))
        for row, bar in enumerate(self._bars):
            if math.isfinite(bar.value):
                colour = QColor(look.problem) if bar.bad else run_colour(0, self._dark)
                self._whisker(row, bar, QColor(look.text))
                self._add(pg.ScatterPlotItem([bar.value], [-row], size=POINT_PX, brush=colour, pen=None))
                self._write(bar.words, max(bar.value, bar.high), row, QColor(look.text))


def times(value: float | None) -> str:
    """A ratio as words: 1.39x."""
    return NOTHING if value is None or not math.isfinite(value) else tr("{ratio}x", ratio=f"{value:.2f}")


def _floats(value: float) -> NDArray[np.float64]:
    return np.array([value], dtype=np.float64)
