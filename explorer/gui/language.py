"""The words of the window in the person's language."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

CONTEXT = "explorer"
"""Qt sorts translations by context; one is enough: the same words mean the same everywhere in this window."""


def tr(words: str, **values: object) -> str:
    """``words``, an English literal, in the language that is set, with ``values`` put in their {places}."""
    said = QCoreApplication.translate(CONTEXT, words)
    return said.format(**values) if values else said
