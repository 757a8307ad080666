"""What the pages of ladder, sweep and attribution share: what is to be measured, how far it is, and buttons."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QSpinBox,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from explorer.config import RunConfig, Workload
from explorer.experiments.plans import Plan, Rows
from explorer.gui.compare_panel import BUDGET_S, DEFAULT_BUDGET_S
from explorer.gui.controls import ElidedLabel, quiet_wheel
from explorer.gui.language import later, tr
from explorer.gui.result_table import ResultTable
from explorer.gui.table_shape import keep_rows_in_sight
from explorer.gui.wording import keep
from explorer.optimizations.registry import OPTIMIZATIONS
from explorer.results.environment import DeviceInfo, Environment

Kind = Literal["ladder", "sweep", "attribution", "floor"]


class SeriesPage(QWidget):
    """One experiment of many measurements. ``show_found`` redraws it from what there is so far."""

    start_wanted = Signal()
    stop_wanted = Signal()
    export_wanted = Signal()

    def __init__(self, kind: Kind, title: str, table: ResultTable, *, checks: bool) -> None:
        """``title``: an English literal; ``checks``: whether settings are checked as well as timed."""
        super().__init__()
        self.kind: Kind = kind
        self.title = title
        self.rows: Rows = []
        """What is shown, as CSV has it."""
        self._found: Any = ()
        """What the rows were made from; empty where there is nothing."""
        self._toggles: tuple[str, ...] = ()
        self._edits: list[QLineEdit] = []
        """Where the person writes what is to be measured."""
        self.setObjectName(f"{kind}_page")
        self.table = table
        keep_rows_in_sight(table)
        self._dark = False
        self._with_checks = checks
        self.budget = QSpinBox()
        self.budget.setObjectName(f"{kind}_budget")
        self.budget.setRange(*BUDGET_S)
        self.budget.setValue(DEFAULT_BUDGET_S)
        self.budget.setSuffix(" s")
        quiet_wheel(self.budget)
        keep(self.budget.setToolTip, "Most seconds of measuring for each part")
        keep(self.budget.setAccessibleName, "Most seconds of measuring for each part")
        self.parity = self._check("parity", later("parity"), later("Are the numbers of each setting as float32's?"))
        self.proof = self._check("proof", later("proof"), later("Did every toggle run? A profile of one step each"))
        self.go_on = self._check(
            "go_on",
            later("Go on"),
            later("Keep what was measured under the same conditions; otherwise all is measured anew"),
        )
        self.start = self._button("start", later("Measure"), later("Measure what is not known yet"))
        self.stop = self._button("stop", later("■  Stop"), later("Stop; what was measured is kept (Shift+F5)"))
        self.export = self._button("export", later("Export…"), later("Write the table as CSV"))
        self.start.clicked.connect(self.start_wanted)
        self.stop.clicked.connect(self.stop_wanted)
        self.export.clicked.connect(self.export_wanted)
        self._told: str | None = None
        self._trains = True
        self._progress = ElidedLabel()
        self._progress.setObjectName(f"{kind}_progress")
        self._progress.setProperty("role", "small")

    def show_state(self, *, going: bool, measuring: bool) -> None:
        """``going``: something has the worker; ``measuring``: it is this page's experiment."""
        self.start.setEnabled(not going)
        self.stop.setEnabled(measuring)
        for control in (self.budget, self.parity, self.proof, self.go_on, *self._inputs()):
            control.setEnabled(not measuring)

    def show_progress(self, words: str | None) -> None:
        """Say what is being done, or what it came to; None: what there is to do."""
        self._told = words
        shown = self._to_do() if words is None else words
        self._progress.setText(shown)
        self._progress.setToolTip(shown)

    def show_workload(self, workload: Workload) -> None:
        """What the settings of the moment are for: only training can be measured here."""
        self._trains = workload == "train"
        self.show_progress(self._told)

    def _to_do(self) -> str:
        if self._trains:
            return tr("Press Measure. Model, batch and length are those set at the top; no run can go on beside it.")
        return tr("Choose Train at the top left first: only training is measured here.")

    def values(self) -> dict[str, Any]:
        """What the person has set, to be remembered."""
        texts = {edit.objectName(): edit.text() for edit in self._edits}
        return {
            **texts,
            "budget_s": self.budget.value(),
            "parity": self.parity.isChecked(),
            "proof": self.proof.isChecked(),
        }

    def take(self, values: Mapping[str, Any]) -> None:
        """Set what was remembered; what cannot be read stays as it is."""
        for edit in self._edits:
            text = values.get(edit.objectName(), "")
            edit.setText(text if isinstance(text, str) else "")
        budget_s = values.get("budget_s")
        if isinstance(budget_s, int):
            self.budget.setValue(budget_s)
        for name, box in (("parity", self.parity), ("proof", self.proof)):
            if isinstance(values.get(name), bool):
                box.setChecked(values[name])

    @abstractmethod
    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        """Show in empty fields what would be measured of ``config`` on ``device``."""

    @abstractmethod
    def plan(self, config: RunConfig, here: Environment) -> Plan:
        """What is asked for.

        Raises:
            ValueError: it cannot be measured.
        """

    def show_found(self, found: Any, rows: Rows, toggles: tuple[str, ...]) -> None:
        """Draw what an experiment has so far, and the rows it comes to; None: nothing."""
        self._found = () if found is None else tuple(found) if isinstance(found, Sequence) else found
        self.rows, self._toggles = rows, toggles
        self.reword()

    @abstractmethod
    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""

    @abstractmethod
    def reword(self) -> None:
        """Show everything in the language of the moment."""

    def _inputs(self) -> Sequence[QWidget]:
        return self._edits

    def _lay_out(self, asked: list[tuple[str, QWidget]], content: QWidget) -> None:
        """``asked``: the fields, each under its English word, over ``content``."""
        first = QHBoxLayout()
        first.setSpacing(8)
        for words, widget in asked:
            if words:
                label = QLabel()
                keep(label.setText, words)
                label.setBuddy(widget)
                first.addWidget(label)
            first.addWidget(widget, 1 if isinstance(widget, QLineEdit) else 0)
        if not any(isinstance(widget, QLineEdit) for _, widget in asked):
            first.addStretch(1)
        second = QHBoxLayout()
        second.setSpacing(8)
        label = QLabel()
        keep(label.setText, "Budget")
        label.setBuddy(self.budget)
        checks = (self.parity, self.proof) if self._with_checks else ()
        for widget in (label, self.budget, *checks, self.start, self.stop):
            second.addWidget(widget)
        second.addStretch(1)
        third = QHBoxLayout()
        third.setSpacing(8)
        third.addWidget(self.go_on)
        third.addWidget(self._progress, 1)
        third.addWidget(self.export)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 4, 8, 4)
        column.setSpacing(4)
        column.addLayout(first)
        column.addLayout(second)
        column.addLayout(third)
        column.addWidget(content, 1)
        self.reword()

    def _edit(self, name: str, words: str) -> QLineEdit:
        """``words``: an English literal, for tooltip and screen reader."""
        edit = QLineEdit()
        edit.setObjectName(f"{self.kind}_{name}")
        edit.setClearButtonEnabled(True)
        keep(edit.setToolTip, words)
        keep(edit.setAccessibleName, words)
        edit.returnPressed.connect(self.start_wanted)
        self._edits.append(edit)
        return edit

    def _adder(self, edit: QLineEdit) -> QToolButton:
        """A button whose menu puts a toggle's level behind what ``edit`` says."""
        menu = QMenu(self)
        for optimization in OPTIMIZATIONS:
            if "train" not in optimization.workloads or optimization.name == "dropout":
                continue
            within = menu.addMenu("")
            keep(within.setTitle, optimization.label)
            for level in optimization.levels[1:]:
                words = f"{optimization.name}={level.id}"
                within.addAction(words).triggered.connect(lambda *_, words=words: _append(edit, words))
        button = QToolButton()
        button.setObjectName(f"{self.kind}_add")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setMenu(menu)
        keep(button.setText, "Add")
        keep(button.setToolTip, "Put a toggle behind those that are there")
        return button

    def _check(self, name: str, words: str, tip: str) -> QCheckBox:
        box = QCheckBox()
        box.setObjectName(f"{self.kind}_{name}")
        box.setChecked(True)
        keep(box.setText, words)
        keep(box.setToolTip, tip)
        return box

    def _button(self, name: str, words: str, tip: str) -> QPushButton:
        button = QPushButton()
        button.setObjectName(f"{self.kind}_{name}")
        keep(button.setText, words)
        keep(button.setToolTip, tip)
        keep(button.setAccessibleName, tip)
        return button


def said(edit: QLineEdit) -> str:
    """What ``edit`` asks for: its text, or what it suggests where it is empty."""
    return edit.text().strip() or edit.placeholderText()


def _append(edit: QLineEdit, words: str) -> None:
    edit.setText(f"{said(edit)} {words}".strip())
    edit.setFocus()
