"""The lab: what is to be measured, how far it is, and its results as plots, sentences and a table."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSortFilterProxyModel, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QTableView,
    QTabWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from explorer.gui.column_model import SORT_ROLE
from explorer.gui.controls import ElidedLabel, divided
from explorer.gui.lab_model import COLUMNS, LabModel
from explorer.gui.lab_plots import MIB, AttentionPlot, LabPlot, RooflinePlot
from explorer.gui.language import later, tr
from explorer.gui.palette import theme
from explorer.gui.readout import Legend
from explorer.gui.table_shape import draw_empty_words, keep_rows_in_sight, shape
from explorer.gui.wording import keep
from explorer.results.lab import OPERATIONS, LabRow
from explorer.results.lab_words import lab_words

CHOICES = tuple(name for name in OPERATIONS if not name.endswith("_backward"))
"""What can be chosen: a backward pass goes with its forward one."""
EMPTY_WORDS = later(
    "Press Measure (F7): each operation of GPT-2 is timed by itself in every variant, and each becomes a row."
)


class LabPanel(QWidget):
    """Holds no results: ``show_rows`` redraws it."""

    start_wanted = Signal()
    stop_wanted = Signal()
    export_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("lab_panel")
        self._rows: Sequence[LabRow] = ()
        self.roofline = RooflinePlot()
        self.times = AttentionPlot(
            name="attention_time_plot",
            title=later("Attention: time"),
            words=later("Time of every kernel of attention over the length of the text."),
            unit="µs",
            value=lambda row: row.time_us,
        )
        self.memory = AttentionPlot(
            name="attention_memory_plot",
            title=later("Attention: memory"),
            words=later(
                "What a call of attention needs besides its inputs, over the length of the text; on GPUs only."
            ),
            unit="MiB",
            value=lambda row: row.peak_bytes / MIB,
        )
        self._plots: tuple[LabPlot, ...] = (self.roofline, self.times, self.memory)
        self._legends = tuple(Legend() for _ in self._plots)
        self._words = QPlainTextEdit()
        self._words.setObjectName("lab_words")
        self._words.setReadOnly(True)
        keep(self._words.setAccessibleName, "In words")
        keep(self._words.setPlaceholderText, "A sentence an experiment, made from its numbers.")
        self._pages = QTabWidget()
        self._pages.setObjectName("lab_pages")
        self._pages.setDocumentMode(True)
        self._titles = (later("Roofline"), later("Attention: time"), later("Attention: memory"), later("In words"))
        for plot, legend in zip(self._plots, self._legends, strict=True):
            page = QWidget()
            column = QVBoxLayout(page)
            column.setContentsMargins(8, 4, 8, 0)
            column.setSpacing(2)
            column.addWidget(legend)
            column.addWidget(plot, 1)
            self._pages.addTab(page, "")
        self._pages.addTab(self._words, "")
        self._model = LabModel(self)
        self._sorted = QSortFilterProxyModel(self)
        self._sorted.setSourceModel(self._model)
        self._sorted.setSortRole(SORT_ROLE)
        self.table = self._table()
        splitter = divided(Qt.Orientation.Vertical, (self._pages, 3), (self.table, 2))
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 4, 8, 4)
        column.setSpacing(4)
        column.addLayout(self._head())
        column.addWidget(self._progress)
        column.addWidget(splitter, 1)
        self.reword()
        self.show_state(going=False, measuring=False)

    def chosen(self) -> tuple[str, ...]:
        """The operations to be measured; none means all."""
        ticked = [action.data() for action in self._operations.actions() if action.isChecked()]
        return () if len(ticked) == len(CHOICES) else tuple(ticked)

    def show_state(self, *, going: bool, measuring: bool) -> None:
        """``going``: something has the worker; ``measuring``: it is the lab."""
        self.start.setEnabled(not going)
        self.stop.setEnabled(measuring)
        for control in (self.quick, self.go_on, self._choose):
            control.setEnabled(not measuring)

    def show_progress(self, words: str) -> None:
        """Say what is being done."""
        self._progress.setText(words)
        self._progress.setToolTip(words)

    def show_rows(self, rows: Sequence[LabRow]) -> None:
        """Draw ``rows``, as far as they have come."""
        self._rows = tuple(rows)
        self._model.show_rows(self._rows)
        for plot in self._plots:
            plot.show_rows(self._rows)
        self._words.setPlainText("\n\n".join(lab_words(self._rows, tr)))
        self._show_legends()

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        for plot in self._plots:
            plot.apply_theme(dark)
        self._show_legends()

    def reword(self) -> None:
        """Show everything in the language of the moment."""
        for index, title in enumerate(self._titles):
            self._pages.setTabText(index, tr(title))
        self._count_chosen()
        self._model.reword()
        self.show_rows(self._rows)

    _dark = False

    def _show_legends(self) -> None:
        for plot, legend in zip(self._plots, self._legends, strict=True):
            legend.show_keys(plot.keys(), theme(self._dark))

    def _head(self) -> QHBoxLayout:
        self._operations = _StayingMenu(self)
        for name in CHOICES:
            action = self._operations.addAction(name)
            action.setData(name)
            action.setCheckable(True)
            action.setChecked(True)
            action.toggled.connect(self._count_chosen)
        self._choose = QToolButton()
        self._choose.setObjectName("lab_operations")
        self._choose.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._choose.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._choose.setMenu(self._operations)
        keep(self._choose.setToolTip, "Which operations are measured; a backward pass goes with its forward one")
        self.quick = QCheckBox()
        self.quick.setObjectName("lab_quick")
        self.quick.setChecked(True)
        keep(self.quick.setText, "Quick")
        keep(self.quick.setToolTip, "Fewer sizes and repetitions: about a minute instead of several")
        self.go_on = QCheckBox()
        self.go_on.setObjectName("lab_go_on")
        self.go_on.setChecked(True)
        keep(self.go_on.setText, "Go on")
        keep(self.go_on.setToolTip, "Keep what was measured under the same conditions; otherwise all is measured anew")
        self.start = self._button("lab_start", later("Measure"), later("Measure the chosen operations (F7)"))
        self.stop = self._button("lab_stop", later("■  Stop"), later("Stop; what was measured is kept (Shift+F5)"))
        export = self._button("lab_export", later("Export…"), later("Write the table as CSV (Ctrl+Alt+K)"))
        self.start.clicked.connect(self.start_wanted)
        self.stop.clicked.connect(self.stop_wanted)
        export.clicked.connect(self.export_wanted)
        self._progress = ElidedLabel()
        self._progress.setObjectName("lab_progress")
        self._progress.setProperty("role", "small")
        row = QHBoxLayout()
        row.setSpacing(8)
        for widget in (self._choose, self.quick, self.go_on, self.start, self.stop):
            row.addWidget(widget)
        row.addStretch(1)
        row.addWidget(export)
        return row

    def _button(self, name: str, words: str, tip: str) -> QPushButton:
        button = QPushButton()
        button.setObjectName(name)
        keep(button.setText, words)
        keep(button.setToolTip, tip)
        keep(button.setAccessibleName, tip)
        return button

    def _table(self) -> QTableView:
        table = _Table()
        table.setObjectName("lab_table")
        keep(table.setAccessibleName, "The lab's results")
        table.setModel(self._sorted)
        table.setSortingEnabled(True)
        table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        shape(table, COLUMNS)
        keep_rows_in_sight(table)
        table.selectionModel().selectionChanged.connect(self._show_selected)
        return table

    def _show_selected(self, *_: object) -> None:
        indexes = self.table.selectionModel().selectedRows()
        self.roofline.show_selected([self._model.row_at(self._sorted.mapToSource(index).row()) for index in indexes])

    def _count_chosen(self, *_: object) -> None:
        chosen = self.chosen()
        many = tr("{count} operations", count=len(chosen)) if len(chosen) > 1 else "".join(chosen)
        ticked = any(action.isChecked() for action in self._operations.actions())
        self._choose.setText((many if chosen else tr("All operations")) if ticked else tr("All operations"))
        self._choose.setAccessibleName(self._choose.text())


class _Table(QTableView):
    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.model().rowCount():
            draw_empty_words(self, EMPTY_WORDS)


class _StayingMenu(QMenu):
    """Stays open while things are ticked."""

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        action = self.actionAt(event.position().toPoint())
        if action is not None and action.isCheckable():
            action.trigger()
        else:
            super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        action = self.activeAction()
        if event.key() == Qt.Key.Key_Space and action is not None:
            action.trigger()
        else:
            super().keyPressEvent(event)
