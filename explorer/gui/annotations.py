"""What is written over a plot: hatched stretches that statistics leave out, and lines where something changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QGuiApplication, QPainter, QPen
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from explorer.gui.language import tr
from explorer.gui.palette import Theme
from explorer.results.ring import PHASES, Columns
from explorer.results.sample import Phase, Sample

BandKind = Literal["compile", "warm-up", "first token"]
_KINDS: dict[Phase, BandKind] = {"compile": "compile", "warmup": "warm-up", "prefill": "first token"}


@dataclass(slots=True, kw_only=True)
class Band:
    start_s: float
    end_s: float
    kind: BandKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    time_s: float
    text: str


@dataclass(slots=True)
class Timeline:
    """The bands and markers of one run; every plot of a panel draws the same one."""

    bands: list[Band] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    _last_s: float = 0.0
    _segment: int = 0
    _texts: dict[int, str] = field(default_factory=dict)

    def name_segment(self, index: int, changes: tuple[str, ...]) -> None:
        """Say what began with segment ``index``; its marker stands where its first step begins."""
        if changes:
            self._texts[index] = ", ".join(change.replace(" -> ", " → ") for change in changes)

    def mark(self, text: str, at_s: float | None = None) -> None:
        """Set a marker at this time of the run, in seconds, or at the last step taken in."""
        self.markers.append(Marker(time_s=self._last_s if at_s is None else at_s, text=text))
        self.markers.sort(key=lambda marker: marker.time_s)

    def add(self, sample: Sample) -> None:
        """Take in the next step."""
        self._stretch(sample.segment, sample.phase, sample.time_s)

    def add_columns(self, columns: Columns) -> None:
        """Take in many steps at once."""
        segments, phases, times_s = (columns[name] for name in ("segment", "phase", "time_s"))
        if not len(times_s):
            return
        ends = np.flatnonzero((np.diff(segments) != 0) | (np.diff(phases) != 0)).tolist()
        for last in (*ends, len(times_s) - 1):
            self._stretch(int(segments[last]), PHASES[phases[last]], float(times_s[last]))

    def _stretch(self, segment: int, phase: Phase, end_s: float) -> None:
        """Steps of one segment and phase that reach to ``end_s``."""
        if segment != self._segment:
            self._segment = segment
            text = self._texts.get(segment)
            if text is not None:
                self.markers.append(Marker(time_s=self._last_s, text=text))
        kind = _KINDS.get(phase)
        if kind is not None:
            last = self.bands[-1] if self.bands else None
            if last is not None and last.kind == kind and last.end_s == self._last_s:
                last.end_s = end_s
            else:
                self.bands.append(Band(start_s=self._last_s, end_s=end_s, kind=kind))
        self._last_s = end_s


class Annotations(pg.GraphicsObject):  # type: ignore[misc]  # pyqtgraph has no types
    """Draws a ``Timeline`` in screen pixels, so that hatching and words keep their size under any zoom.

    ``words``: whether to label markers and bands.
    """

    _ROW_GAP = 2
    _ROWS = 3

    def __init__(self, *, words: bool) -> None:
        super().__init__()
        self._words = words
        self._timeline = Timeline()
        self._look: Theme | None = None
        self.setZValue(50)

    def timeline(self) -> Timeline:
        """What is drawn."""
        return self._timeline

    def words_px(self) -> int:
        """Height at the top of the plot that the markers' labels take."""
        rows = min(len(self._timeline.markers), self._ROWS) if self._words else 0
        # Of the application's font, as the painter has it.
        return rows * (QFontMetrics(QGuiApplication.font()).height() + self._ROW_GAP) + 4 if rows else 0

    def show_timeline(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.update()

    def apply_theme(self, look: Theme) -> None:
        self._look = look
        self.update()

    def boundingRect(self) -> QRectF:
        return QRectF(self.viewRect())

    def viewRangeChanged(self) -> None:
        self.prepareGeometryChange()
        self.update()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        look, view = self._look, self.getViewBox()
        if look is None or view is None:
            return
        to_device = painter.worldTransform()
        frame = to_device.mapRect(self.boundingRect())
        painter.save()
        painter.resetTransform()
        painter.setClipRect(frame)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

        def x_of(time_s: float) -> float:
            return to_device.map(QPointF(time_s, 0.0)).x()

        metrics = QFontMetrics(painter.font())
        for band in self._timeline.bands:
            left, right = x_of(band.start_s), x_of(band.end_s)
            if right < frame.left() or left > frame.right():
                continue
            area = QRectF(left, frame.top(), max(right - left, 1.0), frame.height())
            painter.fillRect(area, QBrush(QColor(look.grid), Qt.BrushStyle.BDiagPattern))
            kind = tr(band.kind)
            if self._words and metrics.horizontalAdvance(kind) + 8 < min(right, frame.right()) - left:
                self._word(painter, kind, left + 4, frame.bottom() - 4, look.muted, look)
        self._draw_markers(painter, frame, [(x_of(m.time_s), m.text) for m in self._timeline.markers], look)
        painter.restore()

    def _draw_markers(self, painter: QPainter, frame: QRectF, markers: list[tuple[float, str]], look: Theme) -> None:
        metrics = QFontMetrics(painter.font())
        row_ends = [frame.left()] * self._ROWS
        for x, text in markers:
            if not frame.left() <= x <= frame.right():
                continue
            painter.setPen(QPen(QColor(look.muted), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(x, frame.top()), QPointF(x, frame.bottom()))
            if not self._words:
                continue
            width = metrics.horizontalAdvance(text) + 8
            # Right of its line; left of it near the edge. The first row with room, so that labels do not overlap.
            left = x if x + width <= frame.right() else max(x - width, frame.left())
            row = next((i for i, end in enumerate(row_ends) if left >= end), None)
            if row is None:
                continue
            row_ends[row] = left + width
            baseline = frame.top() + metrics.ascent() + 2 + row * (metrics.height() + self._ROW_GAP)
            self._word(painter, text, left + 4, baseline, look.text, look)

    @staticmethod
    def _word(painter: QPainter, text: str, x: float, baseline: float, colour: str, look: Theme) -> None:
        metrics = QFontMetrics(painter.font())
        ground = QRectF(x - 2, baseline - metrics.ascent(), metrics.horizontalAdvance(text) + 4, metrics.height())
        painter.fillRect(ground, QColor(look.background))
        painter.setPen(QColor(colour))
        painter.drawText(QPointF(x, baseline), text)
