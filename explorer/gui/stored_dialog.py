"""The window that lists the stored runs: filter, choose, show."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal, SignalInstance
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from explorer.gui.language import tr
from explorer.gui.stored_model import COLUMNS, ID_ROLE, StoredModel, WordFilter
from explorer.gui.table_shape import shape
from explorer.results.stored import Listing

SIZE_PX = (1180, 520)


class StoredDialog(QDialog):
    """Lists stored runs, newest first. Holds nothing else; what the person wants of them goes out as signals.

    From the filter, Down goes to the table and Return shows the selected rows, or the first where none is.
    """

    show_wanted = Signal(list)
    """Numbers of stored runs; likewise the next two"""
    bundle_wanted = Signal(list)
    delete_wanted = Signal(list)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("stored_dialog")
        self.setWindowTitle(tr("Stored runs"))
        self.resize(*SIZE_PX)
        self._rows = StoredModel(self)
        self._shown = WordFilter(self._rows, self)
        self.filter = QLineEdit()
        self.filter.setObjectName("stored_filter")
        self.filter.setAccessibleName(tr("Filter"))
        self.filter.setPlaceholderText(tr("Words that a run must have, such as: bf16 H200 completed"))
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self._filter)
        self.table = self._table()
        self._count = QLabel()
        self._count.setObjectName("stored_count")
        self._show = self._button("stored_show", tr("&Show"), self._want_show)
        self._show.setDefault(True)
        self._bundle = self._button("stored_bundle", tr("Write a &bundle…"), lambda: self._want(self.bundle_wanted))
        self._delete = self._button("stored_delete", tr("&Delete…"), lambda: self._want(self.delete_wanted))
        close = self._button("stored_close", tr("&Close"), self.close)
        context = Qt.ShortcutContext.WidgetShortcut
        QShortcut(QKeySequence(Qt.Key.Key_Delete), self.table, self._delete.click, context=context)
        self.table.selectionModel().selectionChanged.connect(self._show_state)
        buttons = QHBoxLayout()
        buttons.addWidget(self._count, 1)
        for button in (self._show, self._bundle, self._delete, close):
            buttons.addWidget(button)
        column = QVBoxLayout(self)
        column.addWidget(self.filter)
        column.addWidget(self.table, 1)
        column.addLayout(buttons)
        self.filter.setFocus()
        self._count.setText(tr("Reading…"))
        self._show_state()

    def show_listing(self, listing: Listing) -> None:
        """Show these runs."""
        self._rows.show_runs(listing.runs)
        self._filter(self.filter.text())

    def selected(self) -> list[int]:
        """Numbers of the selected runs, from top to bottom."""
        rows = sorted(index.row() for index in self.table.selectionModel().selectedRows())
        return [self._shown.index(row, 0).data(ID_ROLE) for row in rows]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down and self.filter.hasFocus() and self._shown.rowCount():
            self.table.setFocus()
            self.table.selectRow(0)
            return
        super().keyPressEvent(event)

    def _table(self) -> QTableView:
        table = QTableView()
        table.setObjectName("stored_table")
        table.setAccessibleName(tr("Stored runs"))
        table.setModel(self._shown)
        table.setSortingEnabled(True)
        table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        shape(table, COLUMNS)
        table.doubleClicked.connect(self._want_show)
        return table

    def _button(self, name: str, words: str, slot: Callable[[], object]) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setAccessibleName(words.replace("&", ""))
        button.clicked.connect(lambda *_: slot())
        return button

    def _filter(self, text: str) -> None:
        self._shown.set_words(text)
        shown, there = self._shown.rowCount(), self._rows.rowCount()
        if there:
            self._count.setText(tr("{shown:,} of {there:,} runs", shown=shown, there=there))
        else:
            self._count.setText(tr("No run is stored yet: each run that you start is kept here."))
        self._show_state()

    def _show_state(self, *_: object) -> None:
        selected = bool(self.table.selectionModel().selectedRows())
        self._bundle.setEnabled(selected)
        self._delete.setEnabled(selected)
        self._show.setEnabled(bool(self._shown.rowCount()))

    def _want_show(self) -> None:
        if not self.selected() and self._shown.rowCount():
            self.table.selectRow(0)
        self._want(self.show_wanted)

    def _want(self, signal: SignalInstance) -> None:
        ids = self.selected()
        if ids:
            signal.emit(ids)
