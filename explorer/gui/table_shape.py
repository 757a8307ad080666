"""How all tables of the window look: rows as a whole, figures of one width, columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QAbstractItemView, QTableView

from explorer.gui.column_model import Column
from explorer.gui.language import tr
from explorer.gui.palette import tabular


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
