"""A figure by batch and sequence length, as colour and in words; what does not fit is hatched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QResizeEvent

from explorer.gui.axes import EDGE_PX, PlainAxis
from explorer.gui.language import later, tr
from explorer.gui.palette import blend, contrast, run_colour, theme
from explorer.gui.still_plot import StillPlot, pen

LEFT_AXIS_PX = 60
GAP = 0.06
"""Of a cell, between it and the next."""
LEAST_SHADE, MOST_SHADE = 0.12, 0.95
LARGEST_PX = 84
"""Width of the column that says the largest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place of the map."""

    words: str
    value: float = math.nan
    """NaN: nothing was measured here."""
    full: bool = False
    """Whether the device had too little memory."""


class HeatMap(StillPlot):
    """``unit``: an English literal, what the words in the fields are of."""

    def __init__(self, *, name: str, title: str, unit: str, words: str) -> None:
        self._cells: Mapping[tuple[int, int], Cell] = {}
        self._batches: Sequence[int] = ()
        self._largest: Mapping[int, str] = {}
        self._drawn: list[pg.GraphicsObject] = []
        self._with_words = True
        super().__init__(
            name=name,
            title=title,
            words=words,
            left=lambda: PlainAxis("left", later("tokens")),
            bottom=lambda: PlainAxis("bottom", unit),
            left_px=LEFT_AXIS_PX,
            grid="",
        )

    @property
    def cells(self) -> Mapping[tuple[int, int], Cell]:
        """What is drawn, by sequence length and batch."""
        return self._cells

    @property
    def largest(self) -> Mapping[int, str]:
        """What stands behind each row, by sequence length."""
        return self._largest

    def show_cells(
        self, cells: Mapping[tuple[int, int], Cell], batches: Sequence[int], largest: Mapping[int, str]
    ) -> None:
        """Draw ``cells``, by sequence length and batch, in columns of ``batches``, the longest row on top."""
        self._cells, self._batches, self._largest = cells, batches, largest
        self._redraw()

    def _draw(self) -> None:
        cells, batches, largest = self._cells, self._batches, self._largest
        for item in self._drawn:
            self.removeItem(item)
        self._drawn = []
        self._show_empty(not cells)
        if not cells:
            return
        seqs = sorted(largest)
        cell_px = max(self.width() - LEFT_AXIS_PX - EDGE_PX - LARGEST_PX, 1) / len(batches)
        metrics = QFontMetrics(self.font())
        # Half of a map's words would be worse than its colours alone: the table has all figures.
        self._with_words = all(metrics.horizontalAdvance(cell.words) < cell_px for cell in cells.values())
        best = max([cell.value for cell in cells.values() if math.isfinite(cell.value)], default=1.0) or 1.0
        for row, seq in enumerate(seqs):
            for column, batch in enumerate(batches):
                cell = cells.get((seq, batch))
                if cell is not None:
                    self._draw_cell(cell, column, row, cell.value / best)
            self._write(largest[seq], len(batches) - 0.4, row, QColor(theme(self._dark).text), (0, 0.5))
        left, bottom = self._axes
        left.setTicks([[(row, str(seq)) for row, seq in enumerate(seqs)]])
        bottom.setTicks([[(column, str(batch)) for column, batch in enumerate(batches)]])
        for axis in self._axes:
            axis.setStyle(tickLength=0)
        self._view.setRange(
            xRange=(-0.5, len(batches) - 0.5 + LARGEST_PX / cell_px), yRange=(-0.5, len(seqs) - 0.5), padding=0
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._redraw()

    def _draw_cell(self, cell: Cell, column: int, row: int, share: float) -> None:
        look = theme(self._dark)
        ground = QColor(look.background)
        if math.isfinite(share):
            colour = blend(run_colour(0, self._dark), ground, LEAST_SHADE + (MOST_SHADE - LEAST_SHADE) * share)
            brush, text = QBrush(colour), _readable_on(colour)
        else:
            hatched = QColor(look.problem if cell.full else look.grid)
            brush, text = QBrush(hatched, Qt.BrushStyle.BDiagPattern), QColor(look.text)
        size = 1 - GAP
        box = pg.BarGraphItem(
            x0=[column - size / 2], y=[row], width=[size], height=size, brush=brush, pen=pen(QColor(look.grid), 1.0)
        )
        self._add(box)
        fill = None if math.isfinite(share) else pg.mkBrush(ground)
        if self._with_words:
            self._write(cell.words, column, row, text, (0.5, 0.5), fill)

    def _write(
        self, words: str, x: float, y: float, colour: QColor, anchor: tuple[float, float], fill: QBrush | None = None
    ) -> None:
        item = pg.TextItem(words, color=colour, anchor=anchor, fill=fill)
        item.setPos(x, y)
        self._add(item)

    def _add(self, item: pg.GraphicsObject) -> None:
        self._drawn.append(item)
        self.addItem(item, ignoreBounds=True)


def _readable_on(colour: QColor) -> QColor:
    return max((QColor("black"), QColor("white")), key=lambda text: contrast(text, colour))


def largest_words(largest: int | None, too_large: int | None, *, exact: bool) -> str:
    """What is known of the largest batch at one length."""
    if largest is None:
        return tr("none fits") if exact else ""
    if exact:
        return tr("largest: {batch}", batch=largest)
    return (
        tr("≥ {batch}", batch=largest) if too_large is None else tr("{low} to {high}", low=largest, high=too_large - 1)
    )
