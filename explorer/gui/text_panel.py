"""Prompt, sampling controls and the text as it streams."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from explorer.config import RunConfig
from explorer.results.sample import Sample


class TextPanel(QWidget):
    settings_changed = Signal(dict)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.prompt_edit = QPlainTextEdit(self)
        self.text_output = QPlainTextEdit(self)

    def set_config(self, config: RunConfig) -> None: ...

    def begin_run(self, config: RunConfig) -> None: ...

    def append_text(self, text: str) -> None: ...

    def add_samples(self, samples: Sequence[Sample]) -> None: ...

    def end_run(self) -> None: ...

    def apply_theme(self, dark: bool) -> None: ...
