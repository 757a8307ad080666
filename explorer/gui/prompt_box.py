"""What the model continues: one prompt, or in generation several, one a line."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from explorer.config import RunConfig
from explorer.gui.language import later, tr
from explorer.gui.palette import monospace
from explorer.gui.prompt_history import MOST_PROMPTS, PromptHistory
from explorer.gui.readout import Caption
from explorer.gui.wording import keep

BY_LINE_HELP = later(
    "Each line is a prompt of its own. All are continued in one batch, which gets as many sequences, and their texts "
    "stand one below the other. ⏎ within a line stands for a new line."
)
TRAIN_REASON = later("A model in training continues one prompt.")
NEW_LINE = "⏎"
"""Within a prompt where each line is one."""
SHOWN_LINES = 4


class PromptBox(QWidget):
    """The prompt with its history, and whether each line is one."""

    edited = Signal()
    """The person changed it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._trains = False
        self._count = 1
        """Prompts of the configuration that is shown."""
        self.caption = Caption(later("Prompt"))
        self.by_line = QCheckBox()
        self.by_line.setObjectName("prompt_by_line_check")
        keep(self.by_line.setText, "One a line")
        self.by_line.toggled.connect(self._toggled)
        self.history = PromptHistory()
        self.history.chosen.connect(self._take)
        self.edit = QPlainTextEdit()
        self.edit.setObjectName("prompt_edit")
        keep(self.edit.setAccessibleName, "Prompt")
        keep(self.edit.setPlaceholderText, "What the model continues")
        keep(self.edit.setToolTip, "What the model continues. Used from the next Start on.")
        self.edit.setTabChangesFocus(True)
        self.edit.setFont(monospace(self.font().pointSizeF()))
        self.edit.setFixedHeight(SHOWN_LINES * QFontMetrics(self.edit.font()).lineSpacing() + 14)
        self.edit.textChanged.connect(self.edited)
        head = QHBoxLayout()
        head.addWidget(self.caption)
        head.addStretch(1)
        head.addWidget(self.by_line)
        head.addWidget(self.history)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self.edit)

    def set_config(self, config: RunConfig) -> None:
        """Show the prompts of ``config`` without reporting them as changed."""
        self._trains = config.workload == "train"
        prompts = (config.prompt,) if self._trains else (config.prompt, *config.more_prompts)
        self._count = len(prompts)
        with QSignalBlocker(self.edit), QSignalBlocker(self.by_line):
            if len(prompts) > 1:
                self.by_line.setChecked(True)
            if self._typed() != prompts:
                self.edit.setPlainText("\n".join(map(self._as_line, prompts)))
        self.by_line.setEnabled(not self._trains)
        self.by_line.setToolTip(f"{tr(BY_LINE_HELP)}\n{tr(TRAIN_REASON) if self._trains else ''}".strip())
        self.by_line.setAccessibleDescription(self.by_line.toolTip())

    def settings(self) -> dict[str, Any]:
        """prompt, in generation more_prompts, and the batch where the number of prompts changed."""
        prompt, *more = self._typed()
        if self._trains:
            return {"prompt": prompt}
        changed = {"batch": 1 + len(more)} if 1 + len(more) != self._count else {}
        return {"prompt": prompt, "more_prompts": tuple(more), **changed}

    def remember(self, config: RunConfig) -> None:
        """Put the prompts of a run on top of those that were run before."""
        prompts = config.prompts[:MOST_PROMPTS] if config.workload == "generate" else (config.prompt,)
        for prompt in reversed(prompts):
            self.history.add(prompt)

    @property
    def _several(self) -> bool:
        return self.by_line.isChecked() and not self._trains

    def _typed(self) -> tuple[str, ...]:
        text = self.edit.toPlainText()
        if not self._several:
            return (text,)
        return tuple(line.replace(NEW_LINE, "\n") for line in text.split("\n") if line.strip()) or ("",)

    def _as_line(self, prompt: str) -> str:
        return prompt.replace("\n", NEW_LINE) if self._several else prompt

    def _toggled(self) -> None:
        if not self.by_line.isChecked():
            with QSignalBlocker(self.edit):
                self.edit.setPlainText(self.edit.toPlainText().replace(NEW_LINE, "\n"))
        self.edited.emit()

    def _take(self, prompt: str) -> None:
        """Continue ``prompt`` once more, beside those that are there where each line is one."""
        lines = [*map(self._as_line, self._typed() if self._several else ()), self._as_line(prompt)]
        self.edit.setPlainText("\n".join(line for line in lines if line.strip()) if self._several else prompt)
