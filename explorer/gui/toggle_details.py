"""All that there is to say about one toggle, with the PyTorch lines that do it, ready to be copied."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from explorer.gui.language import tr
from explorer.gui.wording import keep
from explorer.optimizations.base import Optimization


class ToggleDetails(QWidget):
    """Shows the Optimization given to ``show_toggle``."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: Optimization | None = None
        self.measured: Callable[[Optimization], str] = lambda optimization: ""
        """What the toggle was seen to do here, in words."""
        self._title = QLabel()
        self._title.setProperty("role", "heading")
        self._copy = QPushButton()
        keep(self._copy.setText, "Copy code")
        self._copy.setObjectName("copy_code_button")
        keep(self._copy.setToolTip, "Copy the PyTorch lines that do this")
        keep(self._copy.setAccessibleName, "Copy the PyTorch lines that do this")
        self._copy.clicked.connect(self._copy_code)
        self._browser = QTextBrowser()
        self._browser.setObjectName("toggle_details")
        keep(self._browser.setAccessibleName, "About this optimization")
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
        self._shown = optimization
        self._title.setText(tr(optimization.label).upper())
        levels = "".join(
            f"<li><b>{escape(tr(level.label))}</b> {escape(tr(level.help))}</li>" for level in optimization.levels
        )
        self._browser.setHtml(
            f"<p>{escape(tr(optimization.help))}</p>"
            f"<p><b>{tr('Costs')}</b> {escape(tr(optimization.cost))}</p>"
            f"<p><b>{tr('Expect')}</b> {escape(tr(optimization.expect))}</p>"
            f"{self._measured(optimization)}"
            f"<ul style='margin-left:-24px'>{levels}</ul>"
            f"<p><b>{tr('Code')}</b></p><pre style='white-space:pre-wrap'>{escape(optimization.code)}</pre>"
            f"<p><b>{tr('Source')}</b> {escape(tr(optimization.source))}</p>"
        )

    def reword(self) -> None:
        """Show it again in the language of the moment, with what was measured since; the place in it stays."""
        if self._shown is not None:
            place = self._browser.verticalScrollBar().value()
            self.show_toggle(self._shown)
            self._browser.verticalScrollBar().setValue(place)

    def _measured(self, optimization: Optimization) -> str:
        words = self.measured(optimization)
        return f"<p><b>{tr('Here')}</b> {escape(words)}.</p>" if words else ""

    def _copy_code(self) -> None:
        if self._shown is not None:
            QGuiApplication.clipboard().setText(self._shown.code)
