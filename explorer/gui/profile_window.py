"""Where a step's time goes: bars by part and by kind, a table by kernel, and what to do with it. It blocks nothing."""

from __future__ import annotations

from PySide6.QtCore import QSortFilterProxyModel, Qt, Signal
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QSplitter,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from explorer.gui.column_model import SORT_ROLE
from explorer.gui.controls import quiet_wheel
from explorer.gui.language import later, tr
from explorer.gui.palette import milliseconds, tabular
from explorer.gui.profile_model import COLUMNS, ProfileModel
from explorer.gui.row_plots import MORE_WORDS_SHARE, NAMES_PX, Bar, RowPlot
from explorer.gui.wording import keep
from explorer.results.step_profile import MOST_STEPS, StepProfile
from explorer.results.step_profile_words import ONE_THING, adds_up, dominant

SIZE_PX = (960, 680)
PLOTS_PX, TABLE_PX = 300, 240
FIRST_STEPS = 3
EMPTY_WORDS = later(
    "Where does the time of a step go? Press Profile (F8): a process of its own warms these settings up and takes some "
    "steps apart, by part, by what runs and by kernel. Profile first, then change one thing at a time."
)


class ProfileWindow(QDialog):
    """Holds no result: ``show_profile`` redraws it. Closed, it keeps what it shows."""

    start_wanted = Signal()
    cancel_wanted = Signal()
    trace_wanted = Signal()
    memory_wanted = Signal()
    table_wanted = Signal()
    copy_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("profile_window")
        keep(self.setWindowTitle, "Profile")
        self.resize(*SIZE_PX)
        self._profile: StepProfile | None = None
        self.parts = RowPlot(
            name="profile_parts_plot",
            title=later("Time by part"),
            words=later("A bar a part of the step; grey: nothing ran until it did."),
            unit=later("ms; grey: nothing ran until then"),
            names_px=NAMES_PX,
            words_share=MORE_WORDS_SHARE,
        )
        self.kinds = RowPlot(
            name="profile_kinds_plot",
            title=later("Time by what runs"),
            words=later("A bar a kind of kernel: matrix products, attention, and what else a step computes."),
            unit="ms",
            names_px=NAMES_PX,
            words_share=MORE_WORDS_SHARE,
        )
        self._model = ProfileModel(self)
        self.table = self._table()
        self._sentence = self._words("profile_sentence", "verdict")
        self._details = self._words("profile_details", "muted")
        plots = QWidget()
        beside = QHBoxLayout(plots)
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(8)
        for plot in (self.parts, self.kinds):
            beside.addWidget(plot, 1)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(plots)
        splitter.addWidget(self.table)
        splitter.setSizes([PLOTS_PX, TABLE_PX])
        splitter.setChildrenCollapsible(False)
        column = QVBoxLayout(self)
        column.addLayout(self._head())
        column.addWidget(self._sentence)
        column.addWidget(self._details)
        column.addWidget(splitter, 1)
        column.addLayout(self._line())
        column.addLayout(self._foot())
        self.show_profile(None)

    def show_state(self, *, obstacle: str, profiling: bool) -> None:
        """``obstacle``: why no profile can begin now; empty where one can."""
        self.start.setEnabled(not obstacle and not profiling)
        self.start.setToolTip(obstacle or tr("Profile these settings (F8)"))
        self.cancel.setEnabled(profiling)
        self.steps.setEnabled(not profiling)

    def show_progress(self, words: str) -> None:
        """Say what is being done, or why nothing came of it."""
        self._progress.setText(words)

    def show_nsys(self, line: str) -> None:
        """The line that has Nsight Systems record the settings of the moment."""
        self.nsys.setText(line)
        self.nsys.setCursorPosition(0)

    def show_profile(self, profile: StepProfile | None) -> None:
        """Draw ``profile``; None: nothing was profiled yet."""
        self._profile = profile
        self._model.show_profile(profile)
        for button in (self.save_trace, self.export):
            button.setEnabled(profile is not None)
        memory = profile is not None and bool(profile.memory_file)
        self.save_memory.setEnabled(memory)
        why = "" if memory else tr("Only the allocator of a CUDA device keeps a record of what it gave out.")
        self.save_memory.setToolTip(why or tr("For pytorch.org/memory_viz"))
        if profile is None:
            self._sentence.hide()
            self._details.setText(tr(EMPTY_WORDS))
            self.parts.show_bars([])
            self.kinds.show_bars([])
            return
        self._sentence.setText(dominant(profile, tr))
        self._sentence.show()
        gap = tr(
            "Longest gap: {ms:.3f} ms, until {part} went on.",
            ms=profile.longest_gap_ms,
            part=tr(profile.longest_gap_part),
        )
        self._details.setText(" ".join((adds_up(profile, tr), gap, tr(ONE_THING))))
        self.parts.show_bars(part_bars(profile))
        self.kinds.show_bars(kind_bars(profile))

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self.parts.apply_theme(dark)
        self.kinds.apply_theme(dark)

    def reword(self) -> None:
        """Show everything in the language of the moment."""
        self._model.reword()
        self.show_profile(self._profile)

    def _head(self) -> QHBoxLayout:
        self.start = self._button("profile_start", later("Profile"), self.start_wanted)
        self.start.setDefault(True)
        self.steps = QSpinBox()
        self.steps.setObjectName("profile_steps")
        self.steps.setRange(1, MOST_STEPS)
        self.steps.setValue(FIRST_STEPS)
        keep(self.steps.setSuffix, " steps")
        keep(self.steps.setAccessibleName, "Steps to profile")
        keep(self.steps.setToolTip, "Steps that are taken apart; in generation, tokens after the prompt")
        quiet_wheel(self.steps)
        self.cancel = self._button("profile_cancel", later("Cancel"), self.cancel_wanted)
        self._progress = QLabel()
        self._progress.setObjectName("profile_progress")
        self._progress.setWordWrap(True)
        row = QHBoxLayout()
        for widget in (self.start, self.steps, self.cancel):
            row.addWidget(widget)
        row.addWidget(self._progress, 1)
        return row

    def _line(self) -> QHBoxLayout:
        self.nsys = QLineEdit()
        self.nsys.setObjectName("profile_nsys")
        self.nsys.setReadOnly(True)
        self.nsys.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        keep(self.nsys.setAccessibleName, "The line for Nsight Systems")
        keep(self.nsys.setToolTip, "Records the same settings by NVIDIA's Nsight Systems, the parts by their names")
        row = QHBoxLayout()
        row.addWidget(self.nsys, 1)
        row.addWidget(self._button("profile_copy_nsys", later("Copy the nsys line"), self.copy_wanted))
        return row

    def _foot(self) -> QHBoxLayout:
        self.save_trace = self._button("profile_save_trace", later("Save Chrome trace…"), self.trace_wanted)
        keep(self.save_trace.setToolTip, "For chrome://tracing or ui.perfetto.dev")
        self.save_memory = self._button("profile_save_memory", later("Save memory snapshot…"), self.memory_wanted)
        self.export = self._button("profile_export", later("Export CSV…"), self.table_wanted)
        close = QPushButton()
        keep(close.setText, "Close")
        close.setAutoDefault(False)
        close.clicked.connect(self.close)
        row = QHBoxLayout()
        for button in (self.save_trace, self.save_memory, self.export):
            row.addWidget(button)
        row.addStretch(1)
        row.addWidget(close)
        return row

    def _button(self, name: str, words: str, wanted: object) -> QPushButton:
        button = QPushButton()
        button.setObjectName(name)
        keep(button.setText, words)
        button.setAutoDefault(False)
        button.clicked.connect(wanted)
        return button

    def _words(self, name: str, role: str) -> QLabel:
        label = QLabel()
        label.setObjectName(name)
        label.setProperty("role", role)
        label.setWordWrap(True)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        return label

    def _table(self) -> QTableView:
        ordered = QSortFilterProxyModel(self)
        ordered.setSourceModel(self._model)
        ordered.setSortRole(SORT_ROLE)
        table = QTableView()
        table.setObjectName("profile_table")
        keep(table.setAccessibleName, "Time by kernel")
        table.setModel(ordered)
        table.setSortingEnabled(True)
        table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setAlternatingRowColors(True)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setTabKeyNavigation(False)
        table.setFont(tabular(table.font()))
        table.verticalHeader().hide()
        metrics = table.fontMetrics()
        table.verticalHeader().setDefaultSectionSize(metrics.height() + 8)
        for index, column in enumerate(COLUMNS):
            widest = max(metrics.horizontalAdvance(column.widest), metrics.horizontalAdvance(tr(column.title)) + 16)
            table.setColumnWidth(index, widest + 12)
        table.horizontalHeader().setStretchLastSection(True)
        table.horizontalHeader().setHighlightSections(False)
        return table


def part_bars(profile: StepProfile) -> list[Bar]:
    """A bar a part, in ms of a round: what it waited for, then what it ran."""
    bars = []
    for part in profile.parts:
        waiting_ms, whole_ms = part.waiting_ms / profile.rounds, (part.waiting_ms + part.busy_ms) / profile.rounds
        share = (part.waiting_ms + part.busy_ms) / profile.traced_ms
        words = tr("{time}, {share:.0%}", time=milliseconds(whole_ms), share=share)
        bars.append(Bar(name=tr(part.name), words=words, value=whole_ms, below=waiting_ms))
    return bars


def kind_bars(profile: StepProfile) -> list[Bar]:
    """A bar a kind of kernel, in ms of a round, the longest first."""
    ran_ms = profile.busy_ms + profile.overlap_ms
    return [
        Bar(
            name=tr(kind),
            words=tr("{time}, {share:.0%}", time=milliseconds(ms / profile.rounds), share=ms / ran_ms),
            value=ms / profile.rounds,
        )
        for kind, ms in profile.kinds().items()
    ]
