"""What a comparison draws: each block's median step time, and the interval of the ratio as it narrows."""

from __future__ import annotations

from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from explorer.gui.axes import PlainAxis
from explorer.gui.language import later
from explorer.gui.palette import A_STYLE, B_STYLE, a_colour, b_colour, blend, theme
from explorer.gui.still_plot import StillPlot, pen
from explorer.results.blocks import Block
from explorer.results.comparison import RatioInterval

LEFT_AXIS_PX = 52
SYMBOLS = ("o", "s")
SYMBOL_PX = 7
LEAST_PAIRS_SHOWN = 8
"""The axis of pairs is at least this long: fewer are never enough."""
STEADY_PAIRS = 4
"""Intervals of fewer pairs may leave the picture: they are many times as wide."""


Arms = tuple[Sequence[tuple[int, Block]], Sequence[tuple[int, Block]]]
"""A's and B's blocks, each with the number of its pair, counted from 0."""


class PairPlot(StillPlot):
    """A plot against the number of pairs."""

    def __init__(self, *, name: str, title: str, words: str) -> None:
        super().__init__(
            name=name,
            title=title,
            words=words,
            left=lambda: PlainAxis("left", title),
            bottom=lambda: PlainAxis("bottom", later("pairs of blocks")),
            left_px=LEFT_AXIS_PX,
            grid="y",
        )

    def _furnish(self) -> None:
        self._axes[1].setStyle(maxTickLevel=0)

    def _fit(self, pairs: int, values: Sequence[float]) -> None:
        """Show ``pairs`` pairs, and all of ``values`` with a little room."""
        low, high = min(values), max(values)
        room = 0.12 * (high - low) or 0.01 * abs(high) or 1.0
        self._view.setRange(
            xRange=(0.5, max(pairs, LEAST_PAIRS_SHOWN) + 0.5), yRange=(low - room, high + room), padding=0
        )


class BlocksPlot(PairPlot):
    """The median step time of each block, A's and B's; blocks that do not count are crossed out."""

    def __init__(self) -> None:
        self._blocks: Arms = ((), ())
        self._crossed_out: Sequence[tuple[int, float]] = ()
        super().__init__(
            name="blocks_plot",
            title=later("ms/step"),
            words=later("Each point will be one block: A and B by turns, so that what drifts hits both alike."),
        )

    def show_blocks(self, blocks: Arms) -> None:
        """Draw A's and B's blocks; none empties the plot."""
        self._blocks = blocks
        self._redraw()

    def show_dropped(self, points: Sequence[tuple[int, float]]) -> None:
        """Cross out the blocks at these pairs (counted from 0) and step times (ms)."""
        self._crossed_out = points
        self._redraw()

    def _furnish(self) -> None:
        super()._furnish()
        self._lines = (pg.PlotDataItem(), pg.PlotDataItem())
        self._dropped = pg.PlotDataItem(pen=None, symbol="x", symbolSize=14)
        for line in (*self._lines, self._dropped):
            self.addItem(line)

    def _draw(self) -> None:
        for line, arm in zip(self._lines, self._blocks, strict=True):
            line.setData([pair + 1 for pair, _ in arm], [block.step_ms for _, block in arm])
        shown = [(pair, block.step_ms) for arm in self._blocks for pair, block in arm]
        self._dropped.setData([pair + 1 for pair, _ in self._crossed_out], [ms for _, ms in self._crossed_out])
        self._show_empty(not shown)
        if shown:
            self._fit(max(pair for pair, _ in shown) + 1, [step_ms for _, step_ms in shown])

    def _dress(self) -> None:
        super()._dress()
        dark = self._dark
        for line, colour, style, symbol in zip(
            self._lines, (a_colour(dark), b_colour(dark)), (A_STYLE, B_STYLE), SYMBOLS, strict=True
        ):
            line.setPen(pen(colour, 1.0, style))
            line.setSymbol(symbol)
            line.setSymbolSize(SYMBOL_PX)
            line.setSymbolPen(None)
            line.setSymbolBrush(colour)
        self._dropped.setSymbolPen(pen(QColor(theme(dark).problem), 2.0))


class IntervalPlot(PairPlot):
    """The ratio and its 95% interval after each pair, over the band within which equal arms may seem to differ."""

    def __init__(self) -> None:
        self._intervals: Sequence[RatioInterval] = ()
        self._floor_share, self._floor_told = 0.0, ""
        super().__init__(
            name="interval_plot",
            title=later("speed of B / A"),
            words=later("The 95% interval of the ratio narrows here, until it lies within 1% or the time is spent."),
        )

    def show_intervals(self, intervals: Sequence[RatioInterval], *, floor: float, floor_words: str) -> None:
        """Draw the intervals so far, one a pair, over a ``floor`` given as a share; none empties the plot."""
        self._intervals, self._floor_share, self._floor_told = intervals, floor, floor_words
        self._redraw()

    def _furnish(self) -> None:
        super()._furnish()
        self._floor = pg.LinearRegionItem(orientation="horizontal", movable=False)
        self._one = pg.InfiniteLine(pos=1.0, angle=0, movable=False)
        self._floor_words = pg.InfLineLabel(self._one, "", position=0.02, anchors=[(0, 1), (0, 1)])
        self._low, self._high, self._ratio = (pg.PlotDataItem() for _ in range(3))
        self._between = pg.FillBetweenItem(self._low, self._high)
        for item in (self._floor, self._one):
            item.setVisible(False)
            self.addItem(item, ignoreBounds=True)
        for item in (self._between, self._low, self._high, self._ratio):
            self.addItem(item)

    def _draw(self) -> None:
        intervals, floor = self._intervals, self._floor_share
        pairs = [interval.n_pairs for interval in intervals]
        for line, values in (
            (self._low, [interval.low for interval in intervals]),
            (self._high, [interval.high for interval in intervals]),
            (self._ratio, [interval.ratio for interval in intervals]),
        ):
            line.setData(pairs, values)
        self._show_empty(not intervals)
        self._floor.setVisible(bool(intervals))
        self._one.setVisible(bool(intervals))
        self._floor.setRegion((1 / (1 + floor), 1 + floor))
        self._floor_words.setText(self._floor_told)
        if intervals:
            steady = [i for i in intervals if i.n_pairs >= STEADY_PAIRS] or intervals
            ends = [1 / (1 + floor), 1 + floor, *(i.low for i in steady), *(i.high for i in steady)]
            self._fit(max(pairs), ends)

    def _dress(self) -> None:
        super()._dress()
        dark = self._dark
        look, colour = theme(dark), b_colour(dark)
        ground = QColor(look.background)
        self._ratio.setPen(pen(colour, 2.0))
        self._ratio.setSymbol(SYMBOLS[1])
        self._ratio.setSymbolSize(SYMBOL_PX)
        self._ratio.setSymbolPen(None)
        self._ratio.setSymbolBrush(colour)
        edge = pen(blend(colour, ground, 0.6), 1.0)
        self._low.setPen(edge)
        self._high.setPen(edge)
        self._between.setBrush(blend(colour, ground, 0.22))
        band = a_colour(dark)
        self._floor.setBrush(blend(band, ground, 0.3))
        for line in self._floor.lines:
            line.setPen(pen(blend(band, ground, 0.6), 1.0))
        self._one.setPen(pen(band, 1.0, Qt.PenStyle.DashLine))
        self._floor_words.setColor(QColor(look.text))  # it lies on the band: muted there is below 4.5:1
