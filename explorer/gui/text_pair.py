"""The texts of A and B side by side, with the place marked where they part."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QResizeEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QSizePolicy, QSplitter, QTextEdit, QVBoxLayout, QWidget

from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import a_colour, b_colour, blend, gib, milliseconds, monospace, si_number, theme
from explorer.gui.pins import LETTERS
from explorer.gui.verdict_words import against_float32, checks_words
from explorer.gui.wording import keep
from explorer.results.checks import Checks, in_words
from explorer.results.parity import first_difference
from explorer.results.text_pair import Written

MARKED_LETTERS = 12
"""From the place on where the texts part."""
ROOM_FOR_BOTH_PX = 520
"""A panel that is narrower has B below A."""
NAMES = (later("Text of A"), later("Text of B"))

LEAST_EDIT_PX = 36


class TextPair(QWidget):
    """Two texts that grow. ``begin`` empties both; the prompt stands before each."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("text_pair")
        self._dark = False
        self._prompt = ""
        self._names = ("", "")
        self._texts = ["", ""]
        self._written: list[Written | None] = [None, None]
        self._complete = False
        self._checks: tuple[Checks, Checks] | None = None
        self._heads = (QLabel(), QLabel())
        self.edits = (QPlainTextEdit(), QPlainTextEdit())
        self.parting = QLabel()
        self.parting.setObjectName("parting_label")
        self.parting.setWordWrap(True)
        self.checked = QLabel()
        self.checked.setObjectName("text_checks_label")
        self.checked.setProperty("role", "small")
        self.checked.setWordWrap(True)
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        for letter, name, head, edit in zip(LETTERS, NAMES, self._heads, self.edits, strict=True):
            head.setObjectName(f"text_{letter.lower()}_head")
            head.setTextFormat(Qt.TextFormat.PlainText)
            head.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            edit.setObjectName(f"text_{letter.lower()}_output")
            keep(edit.setAccessibleName, name)
            edit.setReadOnly(True)
            edit.setMinimumHeight(LEAST_EDIT_PX)
            edit.setTabChangesFocus(True)
            edit.setUndoRedoEnabled(False)
            edit.setFont(monospace(self.font().pointSizeF()))
            side = QWidget()
            column = QVBoxLayout(side)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(4)
            column.addWidget(head)
            column.addWidget(edit, 1)
            self._splitter.addWidget(side)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self._splitter, 1)
        column.addWidget(self.parting)
        column.addWidget(self.checked)
        self.reword()

    def begin(self, prompt: str, names: tuple[str, str]) -> None:
        """Show the prompt alone in both; ``names`` say what the arms are."""
        self._prompt, self._names = prompt, names
        self._texts, self._written, self._complete = ["", ""], [None, None], False
        self._checks = None
        for edit in self.edits:
            edit.setPlainText(prompt)
            self._dress_prompt(edit)
        self.reword()
        self._mark()

    def append_text(self, arm: int, text: str) -> None:
        """Add ``text`` to A's (0) or B's (1), and stay at its end unless the person has scrolled up."""
        self._texts[arm] += text
        bar = self.edits[arm].verticalScrollBar()
        at_end = bar.value() == bar.maximum()
        # A cursor of its own leaves the person's selection alone.
        cursor = QTextCursor(self.edits[arm].document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text, QTextCharFormat())
        if at_end:
            bar.setValue(bar.maximum())
        self._mark()

    def show_written(self, arm: int, written: Written) -> None:
        """Show how fast A (0) or B (1) wrote."""
        self._written[arm] = written
        self.reword()

    def show_checks(self, checks: tuple[Checks, Checks]) -> None:
        """Show whether the numbers of A and B are right, their toggles ran, and what both are worth as models."""
        self._checks = checks
        self._show_checks()

    def end(self, *, complete: bool) -> None:
        """Nothing more comes; ``complete``: both texts are whole. Both show the place where they part."""
        self._complete = complete
        self._mark()
        for edit in self.edits:
            for mark in edit.extraSelections():
                place = QTextCursor(edit.document())
                place.setPosition(mark.cursor.selectionStart())
                edit.setTextCursor(place)
                edit.centerCursor()

    def text(self) -> str:
        """Both texts under their names, and where they part."""
        parts = [f"{h.toolTip()}\n{self._prompt}{t}" for h, t in zip(self._heads, self._texts, strict=True)]
        return "\n\n".join([*parts, self.parting.text()]).rstrip() + "\n"

    def reword(self) -> None:
        """Show names and figures in the language of the moment."""
        for letter, name, written, head in zip(LETTERS, self._names, self._written, self._heads, strict=True):
            words = f"{letter}  {from_below(name).replace(' -> ', ' → ')}"
            if written is not None and written.tokens_per_s is not None:
                figures = tr(
                    "{rate} tokens/s · first token {first}",
                    rate=si_number(written.tokens_per_s),
                    first=milliseconds(float("nan") if written.first_token_ms is None else written.first_token_ms),
                )
                if written.peak_bytes is not None:
                    figures = f"{figures} · {gib(written.peak_bytes)}"
                words = f"{words}\n{figures}"
            head.setText(words)
            head.setToolTip(words)
        self._show_parting()
        self._show_checks()

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        for head, colour in zip(self._heads, (a_colour(dark), b_colour(dark)), strict=True):
            head.setStyleSheet(f"border: none; border-left: 4px solid {colour.name()}; padding-left: 6px;")
        for edit in self.edits:
            self._dress_prompt(edit)
        self._mark()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        beside = self.width() >= ROOM_FOR_BOTH_PX
        self._splitter.setOrientation(Qt.Orientation.Horizontal if beside else Qt.Orientation.Vertical)

    def _place(self) -> int | None:
        """Letters of text before the first that differs; None while, or where, none does."""
        a, b = self._texts
        place = first_difference(a, b)
        return None if place == min(len(a), len(b)) and not self._complete else place

    def _mark(self) -> None:
        place = self._place()
        ground = QColor(theme(self._dark).base)
        for text, edit, colour in zip(
            self._texts, self.edits, (a_colour(self._dark), b_colour(self._dark)), strict=True
        ):
            marks = []
            if place is not None:
                mark = QTextEdit.ExtraSelection()
                mark.format.setBackground(blend(colour, ground, 0.45))
                cursor = QTextCursor(edit.document())
                cursor.setPosition(_qt_length(self._prompt + text[:place]))
                end = _qt_length(self._prompt + text[: place + MARKED_LETTERS])
                cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
                mark.cursor = cursor
                marks = [mark]
            edit.setExtraSelections(marks)
        self._show_parting()

    def _show_parting(self) -> None:
        place = self._place()
        if place is not None:
            self.parting.setText(tr("The texts part after {count} characters.", count=f"{place:,}"))
        elif self._complete:
            self.parting.setText(tr("The texts are the same: {count} characters.", count=f"{len(self._texts[0]):,}"))
        else:
            self.parting.setText("")

    def _show_checks(self) -> None:
        self.checked.setVisible(self._checks is not None)
        if self._checks is None:
            return
        told = [against_float32(letter, found) for letter, found in zip(LETTERS, self._checks, strict=True)]
        self.checked.setText("\n".join(filter(None, [checks_words(self._checks), *told])))
        lines = [line for c, n in zip(self._checks, self._names, strict=True) for line in in_words(c, name=n)]
        self.checked.setToolTip("\n".join(map(from_below, lines)))

    def _dress_prompt(self, edit: QPlainTextEdit) -> None:
        style = QTextCharFormat()
        style.setForeground(QColor(theme(self._dark).muted))
        style.setFontWeight(QFont.Weight.Bold)
        cursor = QTextCursor(edit.document())
        cursor.setPosition(_qt_length(self._prompt), QTextCursor.MoveMode.KeepAnchor)
        cursor.setCharFormat(style)


def _qt_length(text: str) -> int:
    """How many places ``text`` takes in a Qt document, which counts UTF-16."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2
