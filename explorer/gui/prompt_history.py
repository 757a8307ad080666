"""The prompts that were run before, to be taken up again."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from explorer.gui.wording import keep

MOST_PROMPTS = 20
SHOWN_LETTERS = 60


class PromptHistory(QToolButton):
    """A button whose menu lists the prompts, newest first. ``chosen`` carries the whole prompt."""

    chosen = Signal(str)
    changed = Signal(list)
    """The prompts, newest first, after one was added"""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("prompt_history_button")
        keep(self.setText, "Earlier")
        keep(self.setToolTip, "Prompts that were run before")
        keep(self.setAccessibleName, "Prompts that were run before")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._prompts: list[str] = []
        self._list = QMenu(self)
        self.setMenu(self._list)
        self.show_prompts(())

    def prompts(self) -> list[str]:
        """Newest first."""
        return list(self._prompts)

    def show_prompts(self, prompts: Sequence[str]) -> None:
        """List ``prompts``, newest first."""
        self._prompts = list(prompts)[:MOST_PROMPTS]
        self._list.clear()
        for prompt in self._prompts:
            line = " ⏎ ".join(part for part in prompt.splitlines() if part.strip()) or "⏎"
            text = line if len(line) <= SHOWN_LETTERS else line[: SHOWN_LETTERS - 1] + "…"
            action = self._list.addAction(text.replace("&", "&&"))
            action.setToolTip(prompt)
            action.triggered.connect(lambda _=False, prompt=prompt: self.chosen.emit(prompt))
        self.setEnabled(bool(self._prompts))

    def add(self, prompt: str) -> None:
        """Put ``prompt`` on top, once."""
        if prompt and self._prompts[:1] != [prompt]:
            self.show_prompts([prompt, *(p for p in self._prompts if p != prompt)])
            self.changed.emit(self.prompts())
