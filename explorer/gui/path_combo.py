"""A list of names that also takes a path, typed or picked from the disk."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QWidget

from explorer.gui.controls import silenced
from explorer.gui.language import tr
from explorer.gui.wording import add_item

_OPEN = "\0open"


class PathCombo(QComboBox):
    """``chosen`` carries a preset's name or a path: at once when one is picked, else when typing is done.

    Text set from a program counts as chosen as soon as it names a preset or something that exists.
    """

    chosen = Signal(str)

    def __init__(
        self,
        presets: tuple[tuple[str, str], ...],
        open_label: str,
        *,
        folder: bool,
        parent: QWidget | None = None,
    ) -> None:
        """``presets``: (value, tooltip) each; ``open_label``: an English literal."""
        super().__init__(parent)
        self._folder = folder
        self._presets = tuple(value for value, _ in presets)
        self._value = ""
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(9)
        with silenced(self):
            for value, tip in presets:
                self.addItem(value, value)
                self.setItemData(self.count() - 1, tip, Qt.ItemDataRole.ToolTipRole)
            self.insertSeparator(self.count())
            add_item(self, open_label, _OPEN)
        self.currentIndexChanged.connect(self._picked)
        self.editTextChanged.connect(self._typed)
        line = self.lineEdit()
        assert line is not None  # there is one in every editable combo
        line.setCompleter(None)  # type: ignore[arg-type]  # it would finish a path with a preset's name
        line.editingFinished.connect(self._finished)

    def show_value(self, value: str) -> None:
        """Show ``value`` without a signal; a path shows its last part, and the whole as a tooltip."""
        self._value = value
        with silenced(self):
            index = self.findData(value)
            if index < 0:
                self.insertItem(len(self._presets), Path(value).name or value, value)
                self.setItemData(len(self._presets), value, Qt.ItemDataRole.ToolTipRole)
                index = len(self._presets)
            self.setCurrentIndex(index)

    def _picked(self, index: int) -> None:
        value = self.itemData(index)
        if value == _OPEN:
            self.show_value(self._value)
            self._browse()
        elif isinstance(value, str):
            self._choose(value)

    def _typed(self, text: str) -> None:
        if text in self._presets or self._exists(text):
            self._choose(text)

    def _finished(self) -> None:
        text = self.currentText().strip()
        if not text:
            self.show_value(self._value)
        elif text != self.itemText(self.currentIndex()):
            self._choose(text)

    def _choose(self, value: str) -> None:
        if value != self._value:
            self._value = value
            self.chosen.emit(value)

    def _exists(self, text: str) -> bool:
        if not os.path.isabs(text):
            return False
        return os.path.isfile(os.path.join(text, "config.json")) if self._folder else os.path.isfile(text)

    def _browse(self) -> None:
        if self._folder:
            path = QFileDialog.getExistingDirectory(self, tr("Open a folder saved by transformers"))
        else:
            path, _ = QFileDialog.getOpenFileName(self, tr("Open a text file to train on"))
        if path:
            self._choose(path)
