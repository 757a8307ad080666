"""How the next token is picked: length, temperature, top-k, top-p and penalty; and what ends the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from explorer.config import LIMITS, RunConfig, Workload
from explorer.gui.language import later, tr
from explorer.gui.wording import keep

TRAIN_REASON = later("Not used: the workload is train, and no samples of it are wanted.")
GENERATE_REASON = later("Used in training only.")
STOP_HELP = later(
    "The text ends before the first of these strings. | stands between two of them; \\n is a new line, \\t a tab, "
    "\\| and \\\\ the signs themselves."
)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "|": "\\|"}
GREEDY_REASON = later("Not used at temperature 0: the likeliest token is always taken.")


class SamplingControls(QWidget):
    """Six spin boxes and a line; those that play no part are greyed and say why."""

    changed = Signal()
    """The person changed one of them."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.max_new_tokens_spin = QSpinBox()
        self.temperature_spin = QDoubleSpinBox()
        self.top_k_spin = QSpinBox()
        self.top_p_spin = QDoubleSpinBox()
        self.penalty_spin = QDoubleSpinBox()
        self.stop_edit = QLineEdit()
        self.sample_every_spin = QSpinBox()
        for name, whole in (
            ("max_new_tokens", self.max_new_tokens_spin),
            ("top_k", self.top_k_spin),
            ("sample_every", self.sample_every_spin),
        ):
            low, high = LIMITS[name]
            whole.setRange(int(low), int(high))
            whole.valueChanged.connect(self._edited)
        for name, part in (
            ("temperature", self.temperature_spin),
            ("top_p", self.top_p_spin),
            ("repetition_penalty", self.penalty_spin),
        ):
            part.setDecimals(2)
            part.setRange(*LIMITS[name])
            part.valueChanged.connect(self._edited)
        self.temperature_spin.setSingleStep(0.1)
        self.top_p_spin.setSingleStep(0.05)
        self.penalty_spin.setSingleStep(0.05)
        keep(self.temperature_spin.setSpecialValueText, "greedy")
        keep(self.top_k_spin.setSpecialValueText, "off")
        self.sample_every_spin.setSingleStep(10)
        keep(self.sample_every_spin.setSpecialValueText, "never")
        self._workload: Workload = "generate"
        self._help: dict[QAbstractSpinBox, str] = {}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        for index, (name, words, spin, meaning) in enumerate(
            (
                (
                    "max_new_tokens",
                    later("New tokens"),
                    self.max_new_tokens_spin,
                    later("How many tokens to generate at most."),
                ),
                (
                    "temperature",
                    later("Temperature"),
                    self.temperature_spin,
                    later(
                        "Divides the logits before sampling: below 1 bolder, above 1 more random; 0 always takes the "
                        "likeliest token (greedy)."
                    ),
                ),
                (
                    "top_k",
                    later("Top-k"),
                    self.top_k_spin,
                    later("Sample among the k likeliest tokens; 0 turns it off."),
                ),
                (
                    "top_p",
                    later("Top-p"),
                    self.top_p_spin,
                    later("Sample among the likeliest tokens that together reach this probability; 1 turns it off."),
                ),
                (
                    "repetition_penalty",
                    later("Penalty"),
                    self.penalty_spin,
                    later(
                        "Makes tokens that are in the text already less likely: their logits are divided by it, or "
                        "multiplied where they are negative; 1 turns it off."
                    ),
                ),
                (
                    "sample_every",
                    later("Sample each"),
                    self.sample_every_spin,
                    later(
                        "While a model trains it writes a text from the prompt each so many steps, which are not timed "
                        "with it. Used from the next Start on."
                    ),
                ),
            )
        ):
            spin.setObjectName(f"{name}_spin")
            keep(spin.setAccessibleName, words)
            spin.setAlignment(Qt.AlignmentFlag.AlignRight)
            spin.setMinimumWidth(64)
            spin.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            # Half a number typed is no setting yet.
            spin.setKeyboardTracking(False)
            self._help[spin] = meaning
            label = QLabel()
            keep(label.setText, words)
            label.setBuddy(spin)
            row, column = (3, 0) if spin is self.sample_every_spin else divmod(index, 2)
            grid.addWidget(label, row, 2 * column)
            grid.addWidget(spin, row, 2 * column + 1)
        self.stop_edit.setObjectName("stop_edit")
        keep(self.stop_edit.setAccessibleName, "Stop before")
        keep(self.stop_edit.setPlaceholderText, "never")
        self.stop_edit.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.stop_edit.setMinimumWidth(64)
        self.stop_edit.editingFinished.connect(self._edited)
        label = QLabel()
        keep(label.setText, "Stop before")
        label.setBuddy(self.stop_edit)
        grid.addWidget(label, 2, 2)
        grid.addWidget(self.stop_edit, 2, 3)
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(3, 1)

    def set_config(self, config: RunConfig) -> None:
        """Show the settings of ``config`` without reporting them as changed."""
        self._workload = config.workload
        blockers = [QSignalBlocker(spin) for spin in self._help]
        for whole, value in (
            (self.max_new_tokens_spin, config.max_new_tokens),
            (self.top_k_spin, config.top_k),
            (self.sample_every_spin, config.sample_every),
        ):
            if whole.value() != value:
                whole.setValue(value)
        for part, number in (
            (self.temperature_spin, config.temperature),
            (self.top_p_spin, config.top_p),
            (self.penalty_spin, config.repetition_penalty),
        ):
            if part.value() != number:
                part.setValue(number)
        if strings_typed(self.stop_edit.text()) != config.stop:
            self.stop_edit.setText(as_typed(config.stop))
        for blocker in blockers:
            blocker.unblock()
        self._show_use()

    def settings(self) -> dict[str, int | float | tuple[str, ...]]:
        """max_new_tokens, temperature, top_k, top_p, repetition_penalty, sample_every and stop as they stand."""
        return {
            "max_new_tokens": self.max_new_tokens_spin.value(),
            "temperature": self.temperature_spin.value(),
            "top_k": self.top_k_spin.value(),
            "top_p": self.top_p_spin.value(),
            "repetition_penalty": self.penalty_spin.value(),
            "sample_every": self.sample_every_spin.value(),
            "stop": strings_typed(self.stop_edit.text()),
        }

    def _edited(self) -> None:
        self._show_use()
        self.changed.emit()

    def _show_use(self) -> None:
        trains = self._workload == "train"
        idle = trains and self.sample_every_spin.value() == 0
        greedy = self.temperature_spin.value() == 0
        for spin, meaning in self._help.items():
            unused = TRAIN_REASON if idle else ""
            if spin is self.sample_every_spin:
                unused = "" if trains else GENERATE_REASON
            elif not idle and greedy and spin in (self.top_k_spin, self.top_p_spin):
                unused = GREEDY_REASON
            spin.setEnabled(not unused)
            spin.setToolTip(f"{tr(meaning)}\n{tr(unused) if unused else ''}".strip())
            spin.setAccessibleDescription(spin.toolTip())
        self.stop_edit.setEnabled(not idle)
        self.stop_edit.setToolTip(f"{tr(STOP_HELP)}\n{tr(TRAIN_REASON) if idle else ''}".strip())
        self.stop_edit.setAccessibleDescription(self.stop_edit.toolTip())


def as_typed(strings: Sequence[str]) -> str:
    """``strings`` in one line, as ``strings_typed`` reads them."""
    return "|".join("".join(_ESCAPES.get(letter, letter) for letter in string) for string in strings)


def strings_typed(line: str) -> tuple[str, ...]:
    """The strings between the bars of ``line``, without empty ones."""
    signs = {typed: sign for sign, typed in _ESCAPES.items()}
    parts = re.findall(r"\\.|[^\\]|\\$", line, re.DOTALL)
    strings = [""]
    for part in parts:
        if part == "|":
            strings.append("")
        else:
            strings[-1] += signs.get(part, part)
    return tuple(string for string in strings if string)
