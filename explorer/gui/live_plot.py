"""One plot of a run against time: curves, hatching and markers, a limit line, and words while it is empty."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget

from explorer.gui.annotations import Annotations
from explorer.gui.axes import EDGE_PX, PlainAxis, TimeAxis, round_up
from explorer.gui.curve import Curve
from explorer.gui.language import tr
from explorer.gui.palette import Theme
from explorer.gui.readout import coloured
from explorer.gui.wording import keep

LEFT_AXIS_PX = 62
BOTTOM_AXIS_PX = 22
CROSS_WORDS_AT = 0.12
"""Of the plot's height, from below: markers have their words at the top."""


class LivePlot(pg.PlotWidget):  # type: ignore[misc]  # pyqtgraph has no types
    """A plot whose curves are set as a whole, ten times a second at most.

    Args:
        name: objectName.
        title: accessible name.
        axis: the left axis.
        from_zero: whether the left axis begins at zero.
        words: whether markers and hatched stretches are labelled here.
    """

    zoomed = Signal()
    """The person took the range in hand."""
    reset_wanted = Signal()
    """A double click: show everything again."""
    pointed = Signal(object)
    """The time in seconds that the pointer is at; None once it has left"""

    def __init__(
        self, *, name: str, title: str, axis: PlainAxis, from_zero: bool, words: bool, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, axisItems={"left": axis, "bottom": TimeAxis()}, enableMenu=False)
        self.setObjectName(name)
        keep(self.setAccessibleName, title)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._from_zero = from_zero
        self._curves: list[Curve] = []
        self._hand_set = False
        item = self.getPlotItem()
        item.hideButtons()
        item.setContentsMargins(0, EDGE_PX / 2, EDGE_PX, 0)
        axis.setWidth(LEFT_AXIS_PX)
        item.getAxis("bottom").setHeight(BOTTOM_AXIS_PX)
        self._view: pg.ViewBox = item.getViewBox()
        self._view.disableAutoRange()
        self._view.setLimits(xMin=0, yMin=0 if from_zero else None, minXRange=1e-3)
        self._view.setRange(xRange=(0, 10), yRange=(0, 1), padding=0)
        self._view.sigRangeChangedManually.connect(self._taken_in_hand)
        self.annotations = Annotations(words=words)
        self.addItem(self.annotations, ignoreBounds=True)
        self._limit = pg.InfiniteLine(angle=0, movable=False)
        self._limit.setZValue(60)
        self._limit.setVisible(False)
        self._limit_words = pg.InfLineLabel(self._limit, "", position=0.99, anchors=[(1, 1), (1, 1)])
        keep(self._limit_words.setFormat, "limit of the device")
        self.addItem(self._limit, ignoreBounds=True)
        self._cross = pg.InfiniteLine(angle=90, movable=False)
        self._cross.setZValue(70)
        self._cross_words = pg.InfLineLabel(self._cross, "", position=CROSS_WORDS_AT)
        self._cross.setVisible(False)
        self.addItem(self._cross, ignoreBounds=True)
        self.scene().sigMouseMoved.connect(self._point)
        self._empty = QLabel(self)
        self._empty.hide()
        self._empty.setWordWrap(True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        # The plot's size is not final when it is resized: its view follows in the next layout pass.
        self._view.sigResized.connect(self._place_words)

    def add_curve(self, *, above: bool = False) -> Curve:
        """A new empty curve over those added before, and with ``above`` over those to come as well; its pen comes
        from ``dress``.
        """
        curve = Curve()
        curve.setZValue(40 if above else len(self._curves))
        self.addItem(curve, ignoreBounds=True)
        self._curves.append(curve)
        return curve

    @staticmethod
    def dress(
        curve: Curve,
        colour: QColor,
        *,
        width: float = 1.0,
        style: Qt.PenStyle = Qt.PenStyle.SolidLine,
        fill: QColor | None = None,
    ) -> None:
        """Give ``curve`` its pen, and a fill down to zero where ``fill`` is given."""
        pen = QPen(colour, width, style)
        pen.setCosmetic(True)
        curve.setPen(pen)
        curve.setBrush(fill)
        curve.setFillLevel(None if fill is None else 0.0)

    def clear_curves(self) -> None:
        """Take the data out of every curve."""
        for curve in self._curves:
            curve.setData([], [])

    def show_words(self, text: str | None) -> None:
        """An English literal, or finished words, in the middle of the empty plot; None takes them away."""
        if self._empty.text() == tr(text or "") and self._empty.isHidden() == (text is None):
            return
        keep(self._empty.setText, text or "")
        if self._empty.isHidden() != (text is None):
            self._empty.setVisible(text is not None)
            # Ticks of an empty plot would be numbers of nothing, and grid lines run through the words.
            self.showGrid(x=text is None, y=text is None, alpha=0.22)
            for side in ("left", "bottom"):
                self.getPlotItem().getAxis(side).setStyle(showValues=text is None, tickLength=0)
        keep(self.setAccessibleDescription, text or "")
        self._place_words()

    def words(self) -> str:
        return self._empty.text()

    def show_limit(self, value: float | None) -> None:
        """A line across the plot at ``value``."""
        self._limit.setVisible(value is not None)
        if value is not None:
            self._limit.setValue(value)

    def show_crosshair(self, time_s: float | None, words: str = "") -> None:
        """A line at ``time_s`` with what was measured there; None takes it away."""
        self._cross.setVisible(time_s is not None)
        if time_s is not None:
            self._cross.setValue(time_s)
            self._cross_words.setFormat(words)

    def crosshair(self) -> tuple[float, str] | None:
        """Where the line stands, and what it says."""
        return (float(self._cross.value()), str(self._cross_words.format)) if self._cross.isVisible() else None

    def bins(self) -> int:
        """How many stretches of time the plot can tell apart: its width in pixels."""
        return max(int(self._view.width()), 50)

    def time_range(self) -> tuple[float, float]:
        """What part of the time axis is shown, in seconds."""
        low_s, high_s = self._view.viewRange()[0]
        return float(low_s), float(high_s)

    def show_times(self, low_s: float, high_s: float) -> None:
        """Show this part of the time axis."""
        if self.time_range() != (low_s, high_s):
            self._view.setXRange(low_s, high_s, padding=0)

    def fit(self, low: float, high: float) -> None:
        """Show values from ``low`` to ``high``, rounded outwards so that the axis moves seldom; does nothing while
        the person has the range in hand.
        """
        if self._hand_set or not (np.isfinite(low) and np.isfinite(high)):
            return
        if self._from_zero:
            # Labels have a ground of their own: a curve behind one would seem to have a gap.
            free = max(1 - self.annotations.words_px() / max(self._view.height(), 1.0), 0.5)
            ends = (0.0, round_up(high / free))
        else:
            step = round_up((high - low or abs(high) or 1.0) / 4)
            ends = (np.floor(low / step) * step, np.ceil(high / step) * step)
            if ends[0] == ends[1]:
                ends = (ends[0] - step, ends[1] + step)
        if tuple(self._view.viewRange()[1]) != ends:
            self._view.setYRange(*ends, padding=0)

    def let_go(self) -> None:
        """Follow the data again."""
        self._hand_set = False

    def apply_theme(self, look: Theme) -> None:
        self.setBackground(QColor(look.background))
        for side in ("left", "bottom"):
            axis = self.getPlotItem().getAxis(side)
            axis.setPen(QColor(look.grid))
            axis.setTickPen(QColor(look.grid))
            axis.setTextPen(QColor(look.muted))
        self._limit.setPen(QPen(QColor(look.problem), 0, Qt.PenStyle.DashDotLine))
        self._limit_words.setColor(QColor(look.problem))
        self._cross.setPen(QPen(QColor(look.muted), 0))
        self._cross_words.setColor(QColor(look.text))
        self._cross_words.fill = pg.mkBrush(look.background)
        self.annotations.apply_theme(look)
        coloured(self._empty, look.muted)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.reset_wanted.emit()
        event.accept()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def _point(self, place: QPointF) -> None:
        inside = self._view.sceneBoundingRect().contains(place)
        self.pointed.emit(float(self._view.mapSceneToView(place).x()) if inside else None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_words()

    def _taken_in_hand(self) -> None:
        self._hand_set = True
        self.zoomed.emit()

    def _place_words(self) -> None:
        if not hasattr(self, "_empty"):  # resized by the constructor of the class above
            return
        left = LEFT_AXIS_PX + 16
        self._empty.setGeometry(left, 8, max(self.width() - left - 26, 0), max(self.height() - 8 - BOTTOM_AXIS_PX, 0))
