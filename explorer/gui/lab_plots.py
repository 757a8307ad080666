"""What the lab draws: each variant under the card's measured roof, and attention over the length of its text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from explorer.gui.axes import LogAxis, PlainAxis
from explorer.gui.language import later, tr
from explorer.gui.palette import run_colour, run_style, theme
from explorer.gui.readout import Key
from explorer.gui.still_plot import StillPlot, pen
from explorer.results.lab import OPERATIONS, LabRow
from explorer.results.lab_words import name_of

LEFT_AXIS_PX = 60
POINT_PX = 9
WORDS_SHARE = 0.18
"""Of the height, for words above all that is drawn; enough for them in the smallest window."""
WORDS_APART = 1.5
"""Roofs that differ by less have their words in one line."""
_SYMBOLS = ("o", "s", "t", "d", "p", "h", "star", "+", "x")
VARIANTS = tuple(dict.fromkeys(v for operation in OPERATIONS.values() for v in operation.variants))
ATTENTION: Mapping[str, Qt.PenStyle] = MappingProxyType(
    {"attention": Qt.PenStyle.SolidLine, "attention_backward": Qt.PenStyle.DashLine}
)
MIB = 2**20


def colour_of(variant: str, dark: bool) -> QColor:
    """The colour of ``variant`` in every plot of the lab."""
    return run_colour(VARIANTS.index(variant), dark)


def symbol_of(variant: str) -> str:
    """Its symbol: with the colour it tells every variant from every other."""
    return _SYMBOLS[VARIANTS.index(variant) % len(_SYMBOLS)]


class LabPlot(StillPlot):
    """A plot of the rows with logarithmic axes; what stands in the plot are logarithms to base 10."""

    def __init__(
        self, *, name: str, title: str, words: str, left: Callable[[], PlainAxis], bottom: Callable[[], PlainAxis]
    ) -> None:
        self._rows: Sequence[LabRow] = ()
        self._drawn: list[pg.GraphicsObject] = []
        super().__init__(name=name, title=title, words=words, left=left, bottom=bottom, left_px=LEFT_AXIS_PX, grid="xy")

    def show_rows(self, rows: Sequence[LabRow]) -> None:
        """Draw ``rows``."""
        self._rows = rows
        self._redraw()

    def keys(self) -> tuple[Key, ...]:
        """The legend: the variants that are drawn."""
        drawn = dict.fromkeys(row.variant for row in self._known())
        return tuple(
            Key(words=tr(name_of(v)), colour=colour_of(v, self._dark), width=2.0, style=run_style(VARIANTS.index(v)))
            for v in drawn
        )

    def _known(self) -> list[LabRow]:
        """The rows that have a place in this plot."""
        raise NotImplementedError

    def _draw(self) -> None:
        for item in self._drawn:
            self.removeItem(item)
        self._drawn = []
        known = self._known()
        self._show_empty(not known)
        if known:
            self._draw_rows(known)

    def _draw_rows(self, known: list[LabRow]) -> None:
        """Draw ``known``, which are some."""
        raise NotImplementedError

    def _add(self, item: pg.GraphicsObject) -> None:
        self._drawn.append(item)
        self.addItem(item, ignoreBounds=True)

    def _write(self, words: str, x: float, y: float, anchor: tuple[float, float]) -> None:
        """Put words into the plot; ``anchor``: which of their corners lies at (x, y)."""
        item = pg.TextItem(words, color=QColor(theme(self._dark).muted), anchor=anchor)
        item.setPos(x, y)
        self._add(item)


class RooflinePlot(LabPlot):
    """TFLOP/s of each variant against the arithmetic that its operation does on a byte, under the card's limits.

    A limit is what was measured in the same run: the fastest copy, and the matrix product of each format.
    Source: Williams et al. 2009, doi:10.1145/1498765.1498785.
    """

    def __init__(self) -> None:
        self._selected: tuple[LabRow, ...] = ()
        super().__init__(
            name="roofline_plot",
            title=later("Roofline"),
            words=later(
                "A point a variant: how fast it is under the roof that copies and matrix products measure here."
            ),
            left=lambda: LogAxis("left", "TFLOP/s"),
            bottom=lambda: LogAxis("bottom", later("FLOP a byte that must be moved")),
        )

    def show_selected(self, rows: Sequence[LabRow]) -> None:
        """Draw a ring around the points of ``rows``."""
        self._selected = tuple(rows)
        self._redraw()

    def roofs(self) -> dict[str, tuple[float, float]]:
        """By number format: the copy in TB/s, and the product in TFLOP/s, as far as both were measured."""
        copies = [row.copy_gb_per_s / 1e3 for row in self._rows if math.isfinite(row.copy_gb_per_s)]
        products: dict[str, float] = {}
        for row in self._rows:
            if math.isfinite(row.product_tflop_per_s):
                products[row.case.dtype] = max(row.product_tflop_per_s, products.get(row.case.dtype, 0.0))
        return {dtype: (max(copies), product) for dtype, product in products.items()} if copies else {}

    def _known(self) -> list[LabRow]:
        return [row for row in self._rows if math.isfinite(row.tflop_per_s) and row.tflop_per_s > 0]

    def _draw_rows(self, known: list[LabRow]) -> None:
        roofs = self.roofs()
        look = theme(self._dark)
        x = [_intensity(row) for row in known]
        y = [math.log10(row.tflop_per_s) for row in known]
        ends = [math.log10(product / copy) for copy, product in roofs.values()]
        low_x, high_x = min([*x, *ends]) - 0.3, max([*x, *ends]) + 0.6
        tops = [math.log10(product) for _, product in roofs.values()]
        low_y, high_y = min(y) - 0.3, max([*y, *tops])
        high_y += WORDS_SHARE * (high_y - low_y)
        for place, (copy, product) in enumerate(roofs.values()):
            ridge, top = math.log10(product / copy), math.log10(product)
            line = pg.PlotDataItem([low_x, ridge, high_x], [low_x + math.log10(copy), top, top])
            line.setPen(pen(QColor(look.muted), 1.5, run_style(place)))
            self._add(line)
        for group in _close_together(roofs):
            told = ", ".join(
                tr("{format}: {product} TFLOP/s", format=dtype, product=_figure(roofs[dtype][1])) for dtype in group
            )
            self._write(told, high_x, math.log10(roofs[group[0]][1]), (1, 1))
        if roofs:
            copy, _ = max(roofs.values())
            self._write(tr("/ copy: {speed} GB/s", speed=_figure(copy * 1e3)), high_x, low_y, (1, 1))
        self._add(self._points(known, POINT_PX))
        chosen = [row for row in known if any(row is other for other in self._selected)]
        if chosen:
            ring = pg.ScatterPlotItem(size=POINT_PX + 8, pen=pen(QColor(look.text), 2.0), brush=None)
            ring.setData([_intensity(row) for row in chosen], [math.log10(row.tflop_per_s) for row in chosen])
            self._add(ring)
        self._view.setRange(xRange=(low_x, high_x), yRange=(low_y, high_y), padding=0)

    def _points(self, rows: Sequence[LabRow], size_px: float) -> pg.ScatterPlotItem:
        points = pg.ScatterPlotItem(size=size_px, pxMode=True, hoverable=True, tip=_tip)
        points.setData(
            [
                {
                    "pos": (_intensity(row), math.log10(row.tflop_per_s)),
                    "brush": colour_of(row.variant, self._dark),
                    "pen": None,
                    "symbol": symbol_of(row.variant),
                    "data": f"{row.case}\n{tr(name_of(row.variant))}: {row.tflop_per_s:,.1f} TFLOP/s",
                }
                for row in rows
            ]
        )
        return points


class AttentionPlot(LabPlot):
    """A figure of attention over T, a line a variant, backward passes dashed; crosses on top: out of memory."""

    def __init__(self, *, name: str, title: str, words: str, unit: str, value: Callable[[LabRow], float]) -> None:
        self._value = value
        super().__init__(
            name=name,
            title=title,
            words=words,
            left=lambda: LogAxis("left", unit),
            bottom=lambda: LogAxis("bottom", later("tokens a sequence"), base=2),
        )

    def full(self) -> list[LabRow]:
        """Those that ran out of memory."""
        return [row for row in self._of_one_format() if row.outcome == "out of memory"]

    def _of_one_format(self) -> list[LabRow]:
        """Attention's rows in the format that has the most lengths."""
        rows = [row for row in self._rows if row.case.operation in ATTENTION]
        lengths: dict[str, set[int]] = {}
        for row in rows:
            lengths.setdefault(row.case.dtype, set()).add(row.case.shape[2])
        most = max(lengths, key=lambda dtype: len(lengths[dtype]), default="")
        return [row for row in rows if row.case.dtype == most]

    def _known(self) -> list[LabRow]:
        return [row for row in self._of_one_format() if self._value(row) > 0]

    def _draw_rows(self, known: list[LabRow]) -> None:
        full = self.full()
        values = [math.log10(self._value(row)) for row in known]
        low, high = min(values) - 0.2, max(values) + 0.2
        if full:
            high += WORDS_SHARE * (high - low)
        lengths = [_length(row) for row in (*known, *full)]
        for (operation, variant), rows in _lines(known).items():
            rows = sorted(rows, key=_length)
            line = pg.PlotDataItem([_length(row) for row in rows], [math.log10(self._value(row)) for row in rows])
            colour = colour_of(variant, self._dark)
            line.setPen(pen(colour, 1.5, ATTENTION[operation]))
            line.setSymbol(symbol_of(variant))
            line.setSymbolSize(POINT_PX)
            line.setSymbolPen(None)
            line.setSymbolBrush(colour)
            self._add(line)
        for place, ((_, variant), rows) in enumerate(_lines(full).items()):
            crosses = pg.ScatterPlotItem(size=POINT_PX + 3, symbol="x", pen=None, brush=colour_of(variant, self._dark))
            # One below the other, where several variants have no room at the same length.
            crosses.setData([_length(row) for row in rows], [high - 0.04 * (high - low) * (place + 1)] * len(rows))
            self._add(crosses)
        if full:
            self._write(tr("× out of memory"), min(lengths), high, (0, 0))
        self._view.setRange(xRange=(min(lengths) - 0.1, max(lengths) + 0.1), yRange=(low, high), padding=0)


def _close_together(roofs: Mapping[str, tuple[float, float]]) -> list[list[str]]:
    """The formats of ``roofs``, the highest first; those whose words would lie over one another together."""
    groups: list[list[str]] = []
    for dtype in sorted(roofs, key=lambda dtype: -roofs[dtype][1]):
        if groups and roofs[groups[-1][0]][1] < WORDS_APART * roofs[dtype][1]:
            groups[-1].append(dtype)
        else:
            groups.append([dtype])
    return groups


def _lines(rows: Sequence[LabRow]) -> dict[tuple[str, str], list[LabRow]]:
    """Rows by operation and variant."""
    found: dict[tuple[str, str], list[LabRow]] = {}
    for row in rows:
        found.setdefault((row.case.operation, row.variant), []).append(row)
    return found


def _intensity(row: LabRow) -> float:
    return math.log10(row.case.flop / row.case.moved_bytes)


def _length(row: LabRow) -> float:
    return math.log10(row.case.shape[2])


def _figure(value: float) -> str:
    """With two figures at least: 780, 51, 0.097."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _tip(x: float, y: float, data: str) -> str:
    return data
