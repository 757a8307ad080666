"""The table of runs: one row a segment, with its own statistics."""

from __future__ import annotations

import time

from PySide6.QtCore import QSortFilterProxyModel, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAction,
    QColor,
    QGuiApplication,
    QHideEvent,
    QKeySequence,
    QPaintEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QTableView, QWidget

from explorer.gui.column_model import SORT_ROLE
from explorer.gui.language import later, tr
from explorer.gui.runs_model import COLUMNS, KEY_ROLE, RunsModel
from explorer.gui.table_shape import draw_empty_words, shape
from explorer.gui.wording import keep
from explorer.results.log import RunLog

REFRESH_S = 0.25
LARGEST_SHARE = 0.05
"""Of the window's time that refreshing may take: medians of a million steps are worked out less often."""

EMPTY_WORDS = later("Each run becomes a row here, and each setting changed while it runs begins another.")


class RunsTable(QTableView):
    """The runs of ``log``; sorted by clicking a header, copied with Ctrl+C."""

    pin_wanted = Signal(int)
    """The selected row is to be A (0) or B (1)."""
    compare_wanted = Signal()
    """The two selected rows are to be compared."""

    def __init__(self, log: RunLog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("runs_table")
        keep(self.setAccessibleName, "Runs")
        self._rows = RunsModel(log, self)
        sorted_rows = QSortFilterProxyModel(self)
        sorted_rows.setSourceModel(self._rows)
        sorted_rows.setSortRole(SORT_ROLE)
        self.setModel(sorted_rows)
        self.setSortingEnabled(True)
        self.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        shape(self, COLUMNS)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.timeout.connect(self.refresh)
        self._next_s = 0.0
        for words, keys, markdown in (
            (later("Copy"), QKeySequence(QKeySequence.StandardKey.Copy), False),
            (later("Copy as Markdown"), QKeySequence("Ctrl+Shift+C"), True),
        ):
            action = QAction(self)
            keep(action.setText, words)
            action.setShortcut(keys)
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
            action.triggered.connect(lambda _=False, markdown=markdown: self._copy(markdown=markdown))
            self.addAction(action)
        # Their keys are the menu's, which looks at the selection too.
        for name, words, signal in (
            ("pin_row_a_action", later("Pin as A"), lambda: self.pin_wanted.emit(0)),
            ("pin_row_b_action", later("Pin as B"), lambda: self.pin_wanted.emit(1)),
            ("compare_rows_action", later("Compare these two"), self.compare_wanted.emit),
        ):
            action = QAction(self)
            keep(action.setText, words)
            action.setObjectName(name)
            action.triggered.connect(lambda _=False, signal=signal: signal())
            self.addAction(action)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)

    def refresh(self) -> None:
        """Show what the log has gained, now or as soon as the table may change again."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            if self.isVisible() and not self._again.isActive():
                self._again.start(round((self._next_s - now_s) * 1e3) + 1)
            return
        bar = self.verticalScrollBar()
        at_end = bar.value() == bar.maximum()
        before = self._rows.rowCount()
        self._rows.refresh()
        if at_end and self._rows.rowCount() > before:
            self.scrollToBottom()
        end_s = time.monotonic()
        self._next_s = end_s + max(REFRESH_S, (end_s - now_s) / LARGEST_SHARE)

    def mark_arms(self, a: int, b: int) -> None:
        """Give the runs with these ids the names and colours of a comparison's arms."""
        self._rows.mark_arms(a, b)

    def colour(self, run_id: int) -> QColor:
        """Of a run, as its row has it."""
        return self._rows.line(run_id)[0]

    def dashes(self, run_id: int) -> Qt.PenStyle:
        """The dashes of a run, as its row has them."""
        return self._rows.line(run_id)[2]

    def selected(self) -> list[tuple[int, int]]:
        """(run id, segment index) of the selected rows, from top to bottom."""
        rows = sorted(index.row() for index in self.selectionModel().selectedRows())
        return [self.model().index(row, 0).data(KEY_ROLE) for row in rows]

    def reword(self) -> None:
        """Show rows and header in the language of the moment."""
        self._rows.reword()

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._rows.set_dark(dark)

    def text(self, *, markdown: bool) -> str:
        """The selected rows, or all where none is, with their header: tab-separated, or a Markdown table."""
        rows = sorted(index.row() for index in self.selectionModel().selectedRows()) or range(self.model().rowCount())
        columns = range(len(COLUMNS))
        lines = [[tr(column.title) for column in COLUMNS]]
        lines += [[str(self.model().index(row, column).data()) for column in columns] for row in rows]
        if not markdown:
            return "\n".join("\t".join(line) for line in lines) + "\n"
        lines.insert(1, ["---:" if column.number else "---" for column in COLUMNS])
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._again.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._rows.rowCount():
            draw_empty_words(self, EMPTY_WORDS)

    def _copy(self, *, markdown: bool) -> None:
        QGuiApplication.clipboard().setText(self.text(markdown=markdown))
