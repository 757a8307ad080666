"""One line above the curves that says what to do next or what went wrong. It never moves what is below it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from explorer.gui.language import from_below, tr
from explorer.gui.wording import keep
from explorer.messages import Problem

Severity = Literal["hint", "warning", "problem"]
HEIGHT_PX = 36


class MessageBar(QWidget):
    """Shows one message, elided to one line with the whole of it in the tooltip, and at most one action."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("message_bar")
        keep(self.setAccessibleName, "Message")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedHeight(HEIGHT_PX)
        self._text = ""
        self._action: Callable[[], None] | None = None
        self._on_dismiss: Callable[[], None] | None = None
        self._label = QLabel(self)
        self._label.setObjectName("message_label")
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._button = QPushButton(self)
        self._button.setObjectName("message_button")
        self._button.hide()
        self._button.clicked.connect(self._act)
        self._close = QPushButton(self)
        keep(self._close.setText, "Dismiss")
        self._close.setObjectName("dismiss_button")
        self._close.setFlat(True)
        keep(self._close.setAccessibleName, "Dismiss this message")
        self._close.hide()
        self._close.clicked.connect(self._dismiss)
        self._row = row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 8, 4)
        row.setSpacing(8)
        row.addWidget(self._label, 1)
        row.addWidget(self._button)
        row.addWidget(self._close)

    @property
    def text(self) -> str:
        """The whole message, not elided."""
        return self._text

    @property
    def severity(self) -> Severity:
        value: Severity = self._label.property("severity") or "hint"
        return value

    def show_message(
        self,
        text: str,
        *,
        severity: Severity = "hint",
        action: str | None = None,
        on_action: Callable[[], None] | None = None,
        on_dismiss: Callable[[], None] | None = None,
        tooltip: str = "",
    ) -> None:
        """Replace the message; ``action`` is a button's text and ``on_action`` what it does."""
        self._text = " ".join(text.split())
        self._label.setToolTip(tooltip or text)
        self._label.setAccessibleName(text)
        if self._label.property("severity") != severity:
            self._label.setProperty("severity", severity)
            self._label.style().unpolish(self._label)
            self._label.style().polish(self._label)
        self._action, self._on_dismiss = on_action, on_dismiss
        self._button.setText(action or "")
        self._button.setAccessibleName(action or "")
        self._button.setVisible(action is not None)
        self._close.setVisible(severity != "hint")
        self._elide()

    def show_problem(self, problem: Problem) -> None:
        """Say what went wrong; its details can be copied for a report."""
        detail = problem.detail
        self.show_message(
            problem_words(problem),
            severity="problem",
            action=tr("Copy details") if detail else None,
            on_action=lambda: QGuiApplication.clipboard().setText(detail),
        )

    def clear(self) -> None:
        self.show_message("")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        metrics = self._label.fontMetrics()
        self._row.activate()
        self._label.setText(metrics.elidedText(self._text, Qt.TextElideMode.ElideRight, self._label.width()))

    def _dismiss(self) -> None:
        dismissed = self._on_dismiss
        self.clear()
        if dismissed is not None:
            dismissed()

    def _act(self) -> None:
        action = self._action
        self.clear()
        if action is not None:
            action()


def problem_words(problem: Problem) -> str:
    """``str(problem)`` in the language of the moment."""
    parts = dataclasses.replace(
        problem,
        what=from_below(problem.what),
        why=from_below(problem.why),
        remedy=from_below(problem.remedy),
    )
    return str(parts)
