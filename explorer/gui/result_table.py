"""A table that only shows: rows of finished words, figures to the right."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget

from explorer.gui.palette import tabular
from explorer.gui.table_shape import draw_empty_words
from explorer.gui.wording import keep

LEAST_WORDS_PX = 150
"""Narrower words are not elided further: the table can be scrolled then."""


class ResultTable(QTableWidget):
    """``title``: an English literal, for a screen reader. ``words``: the column of words, as wide as there is room.

    ``empty``: an English literal that says what to do while there is no row. ``whole``: where there is too little room,
    the column of words stays as wide as they are, and the table can be scrolled.
    """

    def __init__(
        self, *, name: str, title: str, words: int, empty: str, whole: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._empty = empty
        self._words = words
        self._whole = whole
        self.setObjectName(name)
        keep(self.setAccessibleName, title)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setShowGrid(False)
        self.setAlternatingRowColors(True)
        self.verticalHeader().hide()
        self.setFont(tabular(self.font()))
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 8)
        self.setWordWrap(False)

    def show_rows(self, header: Sequence[str], rows: Sequence[Sequence[str]], tips: Sequence[str]) -> None:
        """Show ``rows`` under ``header``, each with its tooltip."""
        self.setColumnCount(len(header))
        self.setHorizontalHeaderLabels(list(header))
        self.setRowCount(len(rows))
        for number, (row, tip) in enumerate(zip(rows, tips, strict=True)):
            for column, text in enumerate(row):
                item = QTableWidgetItem(text)
                side = Qt.AlignmentFlag.AlignLeft if column == self._words else Qt.AlignmentFlag.AlignRight
                item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                item.setToolTip(tip)
                self.setItem(number, column, item)
        self.horizontalHeader().setStretchLastSection(self._whole)
        self._spread()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.rowCount():
            draw_empty_words(self, self._empty)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._spread()

    def _spread(self) -> None:
        """Give each figure its width, and the words the rest, where that is enough to read them."""
        header, columns = self.horizontalHeader(), range(self.columnCount())
        figures = sum(max(self.sizeHintForColumn(c), header.sectionSizeHint(c)) for c in columns if c != self._words)
        narrow = self.viewport().width() - figures < LEAST_WORDS_PX
        for column in columns:
            stretches = column == self._words and not (self._whole or narrow)
            mode = QHeaderView.ResizeMode.Stretch if stretches else QHeaderView.ResizeMode.ResizeToContents
            if header.sectionResizeMode(column) != mode:
                header.setSectionResizeMode(column, mode)
