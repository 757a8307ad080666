"""A plot that is not dragged or zoomed, with words in it while it is empty."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from explorer.gui.axes import EDGE_PX, PlainAxis
from explorer.gui.palette import theme
from explorer.gui.readout import coloured
from explorer.gui.wording import keep

BOTTOM_AXIS_PX = 36
TICK_PX = -5


class StillPlot(pg.GraphicsView):  # type: ignore[misc]  # pyqtgraph has no types
    """``words`` say what it will show; they and ``title`` are English literals. ``left_px``: width of the left axis.

    Its axes and all that is drawn are made when it is first shown, or asked for: most plots of the window stand behind
    others, and together they took a third of the time in which it opens. A plot keeps what it is to show, and
    ``_draw`` draws that.
    """

    def __init__(
        self,
        *,
        name: str,
        title: str,
        words: str,
        left: Callable[[], PlainAxis],
        bottom: Callable[[], PlainAxis],
        left_px: int,
        grid: str,
    ) -> None:
        """``left`` and ``bottom`` make the axes; ``grid``: those that have grid lines: x, y or xy."""
        self._item: pg.PlotItem | None = None
        self._empty: QLabel | None = None  # resized by the constructor of the class above
        self._left_px = left_px
        super().__init__()
        self.setObjectName(name)
        keep(self.setAccessibleName, title)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._make_axes = (left, bottom)
        self._grid = grid
        self._dark = False
        self._is_empty = True
        self._empty = QLabel(self)
        keep(self._empty.setText, words)
        self._empty.setWordWrap(True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def getPlotItem(self) -> pg.PlotItem:
        """What pyqtgraph draws in, made at the first call; it has its name from pyqtgraph's own widget."""
        if self._item is None:
            self._make()
        return self._item

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        look = theme(dark)
        self.setBackground(QColor(look.background))
        assert self._empty is not None
        coloured(self._empty, look.muted)
        if self._item is not None:
            self._dress()
            self._draw()

    def addItem(self, item: pg.GraphicsObject, *, ignoreBounds: bool = False) -> None:
        self.getPlotItem().addItem(item, ignoreBounds=ignoreBounds)

    def removeItem(self, item: pg.GraphicsObject) -> None:
        self.getPlotItem().removeItem(item)

    def showEvent(self, event: QShowEvent) -> None:
        self.getPlotItem()
        super().showEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_words()

    def _furnish(self) -> None:
        """Add what is always in the plot."""

    def _dress(self) -> None:
        """Give what is always in the plot the colours of the look."""
        look = theme(self._dark)
        for axis in self._axes:
            axis.setPen(QColor(look.grid))
            axis.setTickPen(QColor(look.grid))
            axis.setTextPen(QColor(look.muted))

    def _draw(self) -> None:
        """Draw what is to be shown."""
        raise NotImplementedError

    def _redraw(self) -> None:
        """Draw what is to be shown now; before the plot was shown that is left to then."""
        if self._item is not None and not self.closed:
            self._draw()

    def _show_empty(self, empty: bool) -> None:
        """Show the words and no ticks, or the other way round."""
        self._is_empty = empty
        self._place_words()
        self.getPlotItem().showGrid(x="x" in self._grid and not empty, y="y" in self._grid and not empty, alpha=0.22)
        for axis in self._axes:
            axis.setStyle(showValues=not empty, tickLength=0 if empty else TICK_PX)

    def _make(self) -> None:
        left, bottom = self._axes = tuple(make() for make in self._make_axes)
        self._item = item = pg.PlotItem(axisItems={"left": left, "bottom": bottom}, enableMenu=False)
        self.setCentralItem(item)
        item.hideButtons()
        item.setMouseEnabled(x=False, y=False)
        item.setContentsMargins(0, EDGE_PX / 2, EDGE_PX, 0)
        left.setWidth(self._left_px)
        bottom.setHeight(BOTTOM_AXIS_PX)
        self._view: pg.ViewBox = item.getViewBox()
        self._view.disableAutoRange()
        self._furnish()
        self._dress()
        self._draw()

    def _place_words(self) -> None:
        """Show the words where they are wanted and there is room for all of them."""
        if self._empty is None:
            return
        width, height = max(self.width() - self._left_px - 36, 0), max(self.height() - 56, 0)
        self._empty.setGeometry(self._left_px + 12, 8, width, height)
        self._empty.setVisible(self._is_empty and self._empty.heightForWidth(width) <= height)


def pen(colour: QColor, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
    """A pen whose width is in pixels, whatever the plot's scale."""
    made = QPen(colour, width, style)
    made.setCosmetic(True)
    return made
