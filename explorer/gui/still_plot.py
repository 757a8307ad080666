"""A plot that is not dragged or zoomed, with words in it while it is empty."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen, QResizeEvent
from PySide6.QtWidgets import QLabel

from explorer.gui.axes import EDGE_PX, PlainAxis
from explorer.gui.palette import theme
from explorer.gui.readout import coloured
from explorer.gui.wording import keep

BOTTOM_AXIS_PX = 36
TICK_PX = -5


class StillPlot(pg.PlotWidget):  # type: ignore[misc]  # pyqtgraph has no types
    """``words`` say what it will show; they and ``title`` are English literals. ``left_px``: width of the left axis."""

    def __init__(
        self, *, name: str, title: str, words: str, left: PlainAxis, bottom: PlainAxis, left_px: int, grid: str
    ) -> None:
        """``grid``: the axes that have grid lines: x, y or xy."""
        self._left_px = left_px
        super().__init__(axisItems={"left": left, "bottom": bottom}, enableMenu=False)
        self.setObjectName(name)
        keep(self.setAccessibleName, title)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._grid = grid
        self._dark = False
        self._axes = (left, bottom)
        item = self.getPlotItem()
        item.hideButtons()
        item.setMouseEnabled(x=False, y=False)
        item.setContentsMargins(0, EDGE_PX / 2, EDGE_PX, 0)
        left.setWidth(left_px)
        bottom.setHeight(BOTTOM_AXIS_PX)
        self._view: pg.ViewBox = item.getViewBox()
        self._view.disableAutoRange()
        self._empty = QLabel(self)
        keep(self._empty.setText, words)
        self._empty.setWordWrap(True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.show_empty(True)

    def show_empty(self, empty: bool) -> None:
        """Show the words and no ticks, or the other way round."""
        self._is_empty = empty
        self._place_words()
        self.showGrid(x="x" in self._grid and not empty, y="y" in self._grid and not empty, alpha=0.22)
        for axis in self._axes:
            axis.setStyle(showValues=not empty, tickLength=0 if empty else TICK_PX)

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        look = theme(dark)
        self.setBackground(QColor(look.background))
        for axis in self._axes:
            axis.setPen(QColor(look.grid))
            axis.setTickPen(QColor(look.grid))
            axis.setTextPen(QColor(look.muted))
        coloured(self._empty, look.muted)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if hasattr(self, "_empty"):  # else resized by the constructor of the class above
            self._place_words()

    def _place_words(self) -> None:
        """Show the words where they are wanted and there is room for all of them."""
        width, height = max(self.width() - self._left_px - 36, 0), max(self.height() - 56, 0)
        self._empty.setGeometry(self._left_px + 12, 8, width, height)
        self._empty.setVisible(self._is_empty and self._empty.heightForWidth(width) <= height)


def pen(colour: QColor, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
    """A pen whose width is in pixels, whatever the plot's scale."""
    made = QPen(colour, width, style)
    made.setCosmetic(True)
    return made
