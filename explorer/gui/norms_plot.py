"""The gradient norms that led to a loss that is no number, or to steps that changed nothing."""

from __future__ import annotations

import math

import pyqtgraph as pg
from PySide6.QtGui import QColor

from explorer.gui.axes import LogAxis, PlainAxis
from explorer.gui.language import later
from explorer.gui.palette import run_colour, theme
from explorer.gui.still_plot import StillPlot, pen
from explorer.gui.wording import keep

HEIGHT_PX = 132
LEFT_AXIS_PX = 64
Norms = tuple[tuple[int, float], ...]
"""(step, gradient norm), some of them no numbers."""


class NormsPlot(StillPlot):
    """Norms by step on a logarithmic axis; a mark at the top for each that is no number."""

    def __init__(self) -> None:
        self._norms: Norms = ()
        super().__init__(
            name="norms_plot",
            title=later("Gradient norm"),
            words="",
            left=lambda: LogAxis("left", later("gradient norm")),
            bottom=lambda: PlainAxis("bottom", later("step")),
            left_px=LEFT_AXIS_PX,
            grid="y",
        )
        self.setFixedHeight(HEIGHT_PX)
        keep(self.setToolTip, "Gradient norm of each step; red marks at the top: it was no number")

    def show_norms(self, norms: Norms) -> None:
        """Draw these."""
        self._norms = norms
        self._redraw()

    def _furnish(self) -> None:
        self._line = pg.PlotDataItem(connect="finite", skipFiniteCheck=False)
        self._marks = pg.PlotDataItem(pen=None, symbol="s", symbolSize=3)
        self.addItem(self._line)
        self.addItem(self._marks)

    def _dress(self) -> None:
        super()._dress()
        self._line.setPen(pen(run_colour(0, self._dark), 1.5))
        self._marks.setSymbolPen(None)
        self._marks.setSymbolBrush(QColor(theme(self._dark).problem))

    def _draw(self) -> None:
        self._show_empty(not self._norms)
        if not self._norms:
            return
        steps = [step for step, _ in self._norms]
        logs = [math.log10(norm) if math.isfinite(norm) and norm > 0 else math.nan for _, norm in self._norms]
        drawn = [log for log in logs if math.isfinite(log)] or [0.0]
        low, high = math.floor(min(drawn)), math.ceil(max(drawn)) + 1
        self._line.setData(steps, logs)
        odd = [step for step, norm in self._norms if not math.isfinite(norm)]
        self._marks.setData(odd, [high - 0.5] * len(odd))
        self._view.setRange(xRange=(steps[0], max(steps[-1], steps[0] + 1)), yRange=(low, high), padding=0.03)
