"""What the worker holds of memory, as text to read, to copy and to keep; it blocks nothing."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from explorer.gui.language import from_below, later
from explorer.gui.wording import keep
from explorer.messages import MemorySummary

SIZE_PX = (760, 560)
"""torch's table is 75 letters wide."""


class MemoryWindow(QDialog):
    """Shows the newest MemorySummary."""

    again_wanted = Signal()
    save_wanted = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("memory_window")
        keep(self.setWindowTitle, "Memory")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE_PX)
        self._summary: MemorySummary | None = None
        self._text = QPlainTextEdit()
        self._text.setObjectName("memory_text")
        self._text.setReadOnly(True)
        self._text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        keep(self._text.setAccessibleName, "Memory")
        row = QHBoxLayout()
        for name, words, slot in (
            ("memory_again", later("Look again"), self.again_wanted.emit),
            ("memory_copy", later("Copy"), lambda: QGuiApplication.clipboard().setText(self._text.toPlainText())),
            ("memory_save", later("Save…"), lambda: self.save_wanted.emit(self._text.toPlainText())),
            ("memory_close", later("Close"), self.close),
        ):
            button = QPushButton()
            button.setObjectName(name)
            keep(button.setText, words)
            button.clicked.connect(lambda _=False, slot=slot: slot())
            row.addWidget(button)
        row.insertStretch(1)
        column = QVBoxLayout(self)
        column.addWidget(self._text)
        column.addLayout(row)

    def show_summary(self, summary: MemorySummary) -> None:
        """Show ``summary`` where the one before stood."""
        self._summary = summary
        # Sentences wrap; a table that did could not be read.
        modes = QPlainTextEdit.LineWrapMode
        self._text.setLineWrapMode(modes.NoWrap if summary.tables else modes.WidgetWidth)
        place = self._text.verticalScrollBar().value()
        self._text.setPlainText("\n".join((*map(from_below, summary.lines), *summary.tables)))
        self._text.verticalScrollBar().setValue(place)

    def reword(self) -> None:
        """Show the summary in the language of the moment."""
        if self._summary is not None:
            self.show_summary(self._summary)
