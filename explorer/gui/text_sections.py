"""Texts in a document that grows: one at its end, or several, each at its own."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QTextCharFormat, QTextCursor, QTextDocument

from explorer.gui.language import tr
from explorer.results.log import told_apart

LONGEST_LINE = 2_000
"""Letters after which a line is broken on the screen alone: Qt lays a line out anew as a whole for each piece."""


class LineBreaker:
    """Breaks the longest lines of a text that comes in pieces."""

    def __init__(self) -> None:
        self._length = 0
        """Of the last line so far."""

    def broken(self, text: str) -> str:
        """``text`` with its longest lines broken; what stands in the last line already counts."""
        shown = []
        for number, line in enumerate(text.split("\n")):
            if number:
                self._length = 0
            start = 0
            pieces = []
            while self._length + len(line) - start > LONGEST_LINE:
                end = start + LONGEST_LINE - self._length
                pieces.append(line[start:end])
                start, self._length = end, 0
            self._length += len(line) - start
            shown.append("\n".join([*pieces, line[start:]]))
        return "\n".join(shown)


class TextSections:
    """Texts of several prompts one below the other, each under its number and after its prompt."""

    def __init__(self, document: QTextDocument, prompts: Sequence[str], style: QTextCharFormat) -> None:
        """Put the prompts, in ``style``, into the empty ``document``."""
        self._prompts = tuple(prompts)
        self._texts: list[list[str]] = [[] for _ in prompts]
        self._breakers = [LineBreaker() for _ in prompts]
        self._heads: list[QTextCursor] = []
        self._ends: list[QTextCursor] = []
        cursor = QTextCursor(document)
        places = []
        for number, prompt in enumerate(prompts, start=1):
            begin = cursor.position()
            cursor.insertText(tr("— prompt {number} —", number=number) + "\n", style)
            cursor.insertText(self._breakers[number - 1].broken(prompt), style)
            places.append((begin, cursor.position()))
            if number < len(prompts):
                cursor.insertText("\n\n", QTextCharFormat())
        for begin, end in places:
            head = QTextCursor(document)
            head.setPosition(begin)
            head.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            head.setKeepPositionOnInsert(True)
            self._heads.append(head)
            at = QTextCursor(document)
            at.setPosition(end)
            self._ends.append(at)

    def append(self, row: int, text: str) -> None:
        """Add ``text`` at the end of that of prompt ``row``."""
        self._texts[row].append(text)
        self._ends[row].insertText(self._breakers[row].broken(text), QTextCharFormat())

    def dress(self, style: QTextCharFormat) -> None:
        """Put the prompts on ``style``."""
        for head in self._heads:
            head.setCharFormat(style)

    def text(self) -> str:
        """All of them, told apart."""
        return told_apart(self._prompts, ["".join(pieces) for pieces in self._texts])
