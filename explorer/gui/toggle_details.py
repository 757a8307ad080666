"""All that there is to say about one toggle, with the PyTorch lines that do it, ready to be copied."""

from __future__ import annotations

from html import escape

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from explorer.optimizations.base import Optimization


class ToggleDetails(QWidget):
    """Shows the Optimization given to ``show_toggle``."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._code = ""
        self._title = QLabel()
        self._title.setProperty("role", "heading")
        self._copy = QPushButton("Copy code")
        self._copy.setObjectName("copy_code_button")
        self._copy.setToolTip("Copy the PyTorch lines that do this")
        self._copy.setAccessibleName("Copy the PyTorch lines that do this")
        self._copy.clicked.connect(self._copy_code)
        self._browser = QTextBrowser()
        self._browser.setObjectName("toggle_details")
        self._browser.setAccessibleName("About this optimization")
        self._browser.setOpenExternalLinks(True)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(self._browser, 1)

    def show_toggle(self, optimization: Optimization) -> None:
        """Show ``optimization``."""
        self._code = optimization.code
        self._title.setText(optimization.label.upper())
        levels = "".join(f"<li><b>{escape(level.label)}</b> {escape(level.help)}</li>" for level in optimization.levels)
        self._browser.setHtml(
            f"<p>{escape(optimization.help)}</p>"
            f"<p><b>Costs</b> {escape(optimization.cost)}</p>"
            f"<p><b>Expect</b> {escape(optimization.expect)}</p>"
            f"<ul style='margin-left:-24px'>{levels}</ul>"
            f"<p><b>Code</b></p><pre style='white-space:pre-wrap'>{escape(optimization.code)}</pre>"
            f"<p><b>Source</b> {escape(optimization.source)}</p>"
        )

    def _copy_code(self) -> None:
        QGuiApplication.clipboard().setText(self._code)
