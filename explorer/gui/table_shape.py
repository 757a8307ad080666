"""How all tables of the window look: rows as a whole, figures of one width, columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QAbstractItemView, QTableView

from explorer.gui.column_model import Column
from explorer.gui.language import tr
from explorer.gui.palette import tabular

ROWS_IN_SIGHT = 3
"""At least, in the smallest window."""


def shape(table: QTableView, columns: Sequence[Column]) -> None:
    """Give ``table``, whose model has these ``columns``, the look of the others."""
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setAlternatingRowColors(True)
    table.setShowGrid(False)
    table.setWordWrap(False)
    table.setTabKeyNavigation(False)
    table.setFont(tabular(table.font()))
    table.verticalHeader().hide()
    metrics = QFontMetrics(table.font())
    table.verticalHeader().setDefaultSectionSize(metrics.height() + 8)
    for index, column in enumerate(columns):
        widest = max(metrics.horizontalAdvance(column.widest), metrics.horizontalAdvance(tr(column.title)) + 16)
        table.setColumnWidth(index, widest + 12)
    table.horizontalHeader().setStretchLastSection(True)
    table.horizontalHeader().setHighlightSections(False)


def draw_empty_words(table: QTableView, words: str) -> None:
    """Say in ``table``, which has no row, what will stand there; for its ``paintEvent``.

    ``words``: an English literal.
    """
    painter = QPainter(table.viewport())
    painter.setPen(table.palette().placeholderText().color())
    area = table.viewport().rect().adjusted(16, 8, -16, -8)
    painter.drawText(area, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, tr(words))
    painter.end()


def keep_rows_in_sight(table: QTableView) -> None:
    """Let a splitter leave room for some rows of ``table``, with its header and a bar to scroll by."""
    rows = (1 + ROWS_IN_SIGHT) * table.verticalHeader().defaultSectionSize()
    table.setMinimumHeight(rows + table.horizontalScrollBar().sizeHint().height() + 2 * table.frameWidth())
