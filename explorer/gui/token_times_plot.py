"""Milliseconds of each generated token, with their median and 99th percentile as lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QResizeEvent

from explorer.gui.axes import PlainAxis, round_up
from explorer.gui.language import later
from explorer.gui.palette import blend, run_colour, theme
from explorer.gui.still_plot import StillPlot, pen

HEIGHT_PX = 132
LEAST_HEIGHT_PX = 72
"""With less nothing is drawn: axes and their words would lie over one another."""
LEFT_AXIS_PX = 48
ROOM = 1.5
"""The axis reaches this many times above the 99th percentile: single stalls may leave the picture."""


class TokenTimesPlot(StillPlot):
    def __init__(self) -> None:
        self._run_id = 0
        self._times_ms: Sequence[float] = ()
        self._first = 1
        super().__init__(
            name="token_times_plot",
            title=later("Time of each token"),
            words=later("Each token's time, its median and its 99th percentile."),
            left=lambda: PlainAxis("left", later("ms/token")),
            bottom=lambda: PlainAxis("bottom", later("token")),
            left_px=LEFT_AXIS_PX,
            grid="y",
        )
        # No least height of its own: the panel would take it from the table of runs below.
        self.setMinimumHeight(1)
        self.setMaximumHeight(HEIGHT_PX)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._leave_out_what_is_too_low()

    def set_run(self, run_id: int) -> None:
        """Take the colour of run ``run_id``."""
        self._run_id = run_id
        self.apply_theme(self._dark)

    def show_times(self, times_ms: Sequence[float], *, first: int) -> None:
        """Draw ``times_ms``, the first of which is that of token ``first``, counted from 1."""
        self._times_ms, self._first = times_ms, first
        self._redraw()

    def _furnish(self) -> None:
        self._each = pg.PlotDataItem()
        self._p50, self._p99 = (pg.InfiniteLine(angle=0, movable=False) for _ in range(2))
        for item in (self._each, self._p50, self._p99):
            self.addItem(item, ignoreBounds=True)
        self._leave_out_what_is_too_low()

    def _dress(self) -> None:
        super()._dress()
        look, colour = theme(self._dark), run_colour(self._run_id, self._dark)
        self._each.setPen(pen(blend(colour, QColor(look.background), 0.6), 1.0))
        self._p50.setPen(pen(QColor(look.text), 1.0))
        self._p99.setPen(pen(QColor(look.text), 1.0, Qt.PenStyle.DashLine))

    def _draw(self) -> None:
        times_ms, first = self._times_ms, self._first
        self._show_empty(not len(times_ms))
        for line in (self._p50, self._p99):
            line.setVisible(bool(len(times_ms)))
        self._each.setData(np.arange(first, first + len(times_ms)), np.asarray(times_ms, dtype=float))
        if len(times_ms):
            p50_ms, p99_ms = np.quantile(times_ms, (0.5, 0.99))
            self._p50.setPos(p50_ms)
            self._p99.setPos(p99_ms)
            last = max(first + len(times_ms) - 1, first + 1)
            self._view.setRange(xRange=(first, last), yRange=(0, round_up(ROOM * float(p99_ms))), padding=0)

    def _leave_out_what_is_too_low(self) -> None:
        if self._item is not None and not self.closed:
            self._item.setVisible(self.height() >= LEAST_HEIGHT_PX)
