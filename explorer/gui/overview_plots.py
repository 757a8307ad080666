"""Several runs as bars of their speed, and as points of speed against memory with the front that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QResizeEvent

from explorer.gui.axes import EDGE_PX, PlainAxis, SiAxis, round_up
from explorer.gui.language import from_below, later
from explorer.gui.palette import a_colour, blend, theme
from explorer.gui.still_plot import StillPlot, pen
from explorer.results.overview import Entry, pareto

NAMES_PX = 150
LEFT_AXIS_PX = 60
LEAST_PX = 270
"""Of the bars: three numbers below them do not touch."""
BAR = 0.62
"""Of the room that an entry has."""
POINT_PX = 11
MOST_NAMES = 4
"""That stand beside points which touch; of more, how many."""
ROOMY_PX = 260
"""An axis as wide as this has room for five numbers."""

Colours = Mapping[tuple[int, int], QColor]
"""By run id and segment."""


class BarsPlot(StillPlot):
    """Tokens/s of each entry, the first on top, with a line from its 5th to its 95th percentile."""

    def __init__(self) -> None:
        self._shown: tuple[Sequence[Entry], Colours, float | None] = ((), {}, None)
        super().__init__(
            name="bars_plot",
            title=later("Speed of the runs"),
            words=later("A bar a run: its speed, and the range of nine steps in ten."),
            left=lambda: PlainAxis("left", None),
            bottom=lambda: SiAxis("bottom", later("tokens/s")),
            left_px=NAMES_PX,
            grid="x",
        )
        self.setMinimumWidth(LEAST_PX)

    def show_entries(self, entries: Sequence[Entry], colours: Colours, *, floor: float | None) -> None:
        """Draw ``entries``, each in its colour.

        ``floor``: the share by which equal runs may seem to differ, drawn around the first; None: they do not compare.
        """
        self._shown = (entries, colours, floor)
        self._redraw()

    def _furnish(self) -> None:
        bottom = self._axes[1]
        bottom.setZValue(-1)  # its grid lies under the bars
        bottom.setStyle(maxTextLevel=0)
        self._bars = pg.BarGraphItem(x0=[], y=[], height=BAR, width=[])
        self._ranges = pg.ErrorBarItem(x=_floats(), y=_floats(), left=_floats(), right=_floats(), beam=0.25)
        self._floor = pg.LinearRegionItem(orientation="vertical", movable=False)
        self._floor.setVisible(False)
        self.addItem(self._floor, ignoreBounds=True)
        self.addItem(self._bars)
        self.addItem(self._ranges)

    def _draw(self) -> None:
        entries, colours, floor = self._shown
        known = [(row, e) for row, e in enumerate(entries) if math.isfinite(e.tokens_per_s)]
        self._floor.setVisible(floor is not None and bool(known) and known[0][0] == 0)
        if floor is not None and known:
            first = known[0][1].tokens_per_s
            self._floor.setRegion((first / (1 + floor), first * (1 + floor)))
            band = blend(a_colour(self._dark), QColor(theme(self._dark).background), 0.6)
            self._floor.setBrush(band)
            for edge in self._floor.lines:
                edge.setPen(pen(band, 1.0))
        self._show_empty(not known)
        self._axes[0].setStyle(tickLength=0)  # names need none
        rates = [e.tokens_per_s for _, e in known]
        places = [-row for row, _ in known]
        self._bars.setOpts(
            x0=[0.0] * len(known),
            y=places,
            height=BAR,
            width=rates,
            brushes=[colours[e.run_id, e.segment] for _, e in known],
            pen=None,
        )
        self._ranges.setData(
            x=_floats(rates),
            y=_floats(places),
            left=_floats([e.tokens_per_s - e.tokens_per_s_p5 for _, e in known]),
            right=_floats([e.tokens_per_s_p95 - e.tokens_per_s for _, e in known]),
            pen=pen(QColor(theme(self._dark).text), 1.0),
        )
        metrics = QFontMetrics(self.font())

        def named(entry: Entry) -> str:
            # The axis leaves out what is wider than it, so the number's own width counts. The end of a label tells
            # neighbours apart: toggles are added one by one.
            number = f"{entry.name}  "
            room = NAMES_PX - EDGE_PX - metrics.horizontalAdvance(number)
            return number + metrics.elidedText(from_below(entry.label), Qt.TextElideMode.ElideLeft, room)

        names = [(-row, named(e)) for row, e in enumerate(entries)]
        self.getPlotItem().getAxis("left").setTicks([names])
        highest = max([e.tokens_per_s_p95 for _, e in known], default=1.0)
        end = round_up(1.02 * highest)
        # Numbers at every other line where all of them would touch.
        each = end / 4 if self.width() - NAMES_PX > ROOMY_PX else end / 2
        self.getPlotItem().getAxis("bottom").setTickSpacing(each, end / 4)
        self._view.setRange(xRange=(0, end), yRange=(-max(len(entries), 4) + 0.4, 0.6), padding=0)


class FrontPlot(StillPlot):
    """Speed against memory; up and to the left is better. The line joins those that no other beats in both."""

    def __init__(self) -> None:
        self._shown: tuple[Sequence[Entry], Colours] = ((), {})
        self._words: list[pg.TextItem] = []
        self._named: tuple[Entry, ...] = ()
        self._ends = (1.0, 1.0)
        super().__init__(
            name="front_plot",
            title=later("Speed against memory"),
            words=later(
                "A point a run: up and to the left is better. The line joins those that no other beats in both."
            ),
            left=lambda: SiAxis("left", later("tokens/s")),
            bottom=lambda: PlainAxis("bottom", later("GiB in a step")),
            left_px=LEFT_AXIS_PX,
            grid="xy",
        )

    def show_entries(self, entries: Sequence[Entry], colours: Colours) -> None:
        """Draw ``entries``, each in its colour."""
        self._shown = (entries, colours)
        self._redraw()

    def _furnish(self) -> None:
        self._front = pg.PlotDataItem()
        self._points = pg.ScatterPlotItem(size=POINT_PX, pxMode=True)
        self.addItem(self._front)
        self.addItem(self._points)

    def _draw(self) -> None:
        entries, colours = self._shown
        known = [e for e in entries if math.isfinite(e.tokens_per_s) and math.isfinite(e.memory_gib)]
        self._show_empty(not known)
        best = pareto(entries)
        corners = [(e.memory_gib, e.tokens_per_s) for e in best]
        # Along the front: more memory is spent before anything becomes faster.
        steps = [p for (x0, y0), (x1, _) in pairwise(corners) for p in ((x0, y0), (x1, y0))]
        line = [*steps, *corners[-1:]]
        self._front.setData([x for x, _ in line], [y for _, y in line])
        self._front.setPen(pen(QColor(theme(self._dark).muted), 1.0, Qt.PenStyle.DashLine))
        self._points.setData(
            [
                {
                    "pos": (e.memory_gib, e.tokens_per_s),
                    "brush": colours[e.run_id, e.segment],
                    "pen": None,
                    "symbol": "o" if e in best else "x",
                }
                for e in known
            ]
        )
        self._ends = (
            round_up(1.1 * max([e.memory_gib for e in known], default=1.0)),
            round_up(1.1 * max([e.tokens_per_s for e in known], default=1.0)),
        )
        self._view.setRange(xRange=(0, self._ends[0]), yRange=(0, self._ends[1]), padding=0)
        self._named = tuple(known)
        self._place_names()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._named:  # none before the first drawing: pyqtgraph calls this while the plot is being made
            self._place_names()

    def _place_names(self) -> None:
        """Write each name beside its point, where it covers no other; points that touch share a line."""
        for word in self._words:
            self.removeItem(word)
        self._words = []
        width, height = max(self._view.width(), 1.0), max(self._view.height(), 1.0)
        metrics = QFontMetrics(self.font())
        across, up = width / self._ends[0], height / self._ends[1]
        places = [(e, e.memory_gib * across, -e.tokens_per_s * up) for e in self._named]
        points = [QRectF(x - POINT_PX / 2, y - POINT_PX / 2, POINT_PX, POINT_PX) for _, x, y in places]
        taken: list[QRectF] = []
        for group in touching(places):
            names = [e.name for e, _, _ in group]
            more = f" +{len(names) - MOST_NAMES}" if len(names) > MOST_NAMES else ""
            text = ", ".join(names[:MOST_NAMES]) + more
            size = QSizeF(metrics.horizontalAdvance(text) + 8, metrics.height())
            left, right = min(x for _, x, _ in group), max(x for _, x, _ in group)
            top, bottom = min(y for _, _, y in group), max(y for _, _, y in group)
            best: tuple[float, float, float] | None = None
            for x, y in (
                (right, top - size.height()),
                (left - size.width(), top - size.height()),
                (right, bottom),
                (left - size.width(), bottom),
            ):
                area = QRectF(QPointF(x, y), size)
                outside = x < 0 or x + size.width() > width or y < -height or y + size.height() > 0
                covered = sum(_overlap(area, other) for other in (*taken, *points)) + (1e6 if outside else 0.0)
                if best is None or covered < best[0]:
                    best = covered, x, y
            assert best is not None
            _, x, y = best
            taken.append(QRectF(QPointF(x, y), size))
            word = pg.TextItem(text, color=QColor(theme(self._dark).text), anchor=(0.5, 0.5))
            centre = taken[-1].center()
            word.setPos(centre.x() / across, -centre.y() / up)
            self.addItem(word, ignoreBounds=True)
            self._words.append(word)


Place = tuple[Entry, float, float]
"""An entry and where its point is: pixels to the right, and down."""


def touching(places: Sequence[Place]) -> list[list[Place]]:
    """Those whose points cover one another, directly or by others, together; the highest first."""
    groups: list[list[Place]] = []
    for place in sorted(places, key=lambda place: place[2]):
        near = [
            group
            for group in groups
            if any(abs(place[1] - x) < POINT_PX and abs(place[2] - y) < POINT_PX for _, x, y in group)
        ]
        groups = [group for group in groups if group not in near]
        groups.append([*(one for group in near for one in group), place])
    return groups


def _overlap(a: QRectF, b: QRectF) -> float:
    """Area that both cover."""
    both = a.intersected(b)
    return both.width() * both.height()


def _floats(values: Sequence[float] = ()) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)
