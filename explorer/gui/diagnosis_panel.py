"""The diagnosis of a run: what held it up, in words, and beside each finding what to try next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from explorer.gui.controls import ElidedLabel
from explorer.gui.language import later, tr
from explorer.gui.norms_plot import Norms, NormsPlot
from explorer.gui.wording import keep
from explorer.results.diagnosis import Cause

EMPTY_WORDS = later(
    "What holds a run up stands here, while it goes and when it has ended: launches, memory, arithmetic, data, waits, "
    "or an error. Each with its numbers, and with the toggle to try next.\n\nPress Start (F5)."
)

PROGRESS_PX = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One change of the settings to try; words are in the language of the moment."""

    name: str
    """A toggle, or ``batch``, or ``lr``."""
    words: str
    tip: str
    obstacle: str = ""
    """Why the button cannot be pressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One finding."""

    cause: Cause
    text: str
    """What was found; of a failure, what happened."""
    why: str = ""
    """Of a failure whose parts are known."""
    cure: str = ""
    offers: tuple[Offer, ...] = ()
    norms: Norms = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All that stands in the panel."""

    heading: str
    cards: tuple[Card, ...]
    unknown: str = ""
    """What could not be known, and why."""


class DiagnosisPanel(QWidget):
    """Holds no state of a run: ``show_diagnosis`` redraws it."""

    offer_taken = Signal(str)
    """The name of an Offer."""
    look_wanted = Signal()
    cancel_wanted = Signal()
    appeared = Signal()
    """It can be seen again: what it shows may be old."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("diagnosis_panel")
        self._dark = False
        self._cards: list[_CardView] = []
        self._heading = ElidedLabel()
        self._heading.setObjectName("diagnosis_heading")
        self._heading.setProperty("role", "muted")
        self._empty = _words("diagnosis_empty", "muted")
        keep(self._empty.setText, EMPTY_WORDS)
        self._unknown = _words("diagnosis_unknown", "small")
        inner = QWidget()
        self._column = QVBoxLayout(inner)
        self._column.setContentsMargins(12, 4, 12, 8)
        self._column.setSpacing(12)
        self._column.addWidget(self._empty)
        self._column.addWidget(self._unknown)
        self._column.addStretch(1)
        scroll = QScrollArea()
        scroll.setObjectName("diagnosis_scroll")
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(inner)
        self.look = QPushButton()
        self.look.setObjectName("look_closer_button")
        keep(self.look.setText, "Look closer")
        self.cancel = QPushButton()
        self.cancel.setObjectName("look_closer_cancel")
        keep(self.cancel.setText, "Cancel")
        keep(self.cancel.setAccessibleName, "Cancel looking closer")
        self._progress = _words("diagnosis_progress", "small")
        self._progress.setFixedHeight(PROGRESS_PX)  # two lines, so that nothing above moves
        self._progress.setAlignment(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft)
        self.look.clicked.connect(self.look_wanted)
        self.cancel.clicked.connect(self.cancel_wanted)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.look)
        row.addWidget(self.cancel)
        row.addWidget(self._progress, 1)
        foot = QVBoxLayout()
        foot.setContentsMargins(12, 0, 12, 8)
        foot.addLayout(row)
        head = QHBoxLayout()
        head.setContentsMargins(12, 4, 12, 0)
        head.addWidget(self._heading)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(scroll, 1)
        column.addLayout(foot)
        self.show_diagnosis(None)

    def show_diagnosis(self, shown: Shown | None) -> None:
        """Redraw; None: there was no run yet."""
        self._empty.setVisible(shown is None)
        heading = "" if shown is None else shown.heading
        self._heading.setText(heading)
        self._heading.setToolTip(heading)
        cards = () if shown is None else shown.cards
        # While the same is found its widgets stay: numbers change beneath a hand that is about to press a button.
        if [view.kind for view in self._cards] != [_kind(card) for card in cards]:
            self._rebuild(cards)
        for view, card in zip(self._cards, cards, strict=True):
            view.show_card(card)
        self._unknown.setText("" if shown is None else shown.unknown)
        self._unknown.setVisible(bool(self._unknown.text()))

    def show_look(self, *, obstacle: str, looking: bool, progress: str = "") -> None:
        """Whether a step can be profiled now, or why not; while one is, how far it is."""
        self.look.setVisible(not looking)
        self.look.setEnabled(not obstacle)
        tip = obstacle or tr(
            "Profile one step of these settings: how busy the device is, and with what (some seconds)."
        )
        self.look.setToolTip(tip)
        self.look.setAccessibleDescription(tip)
        self.cancel.setVisible(looking)
        self._progress.setText(progress if looking else obstacle)
        self._progress.setToolTip(self._progress.text())

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        for view in self._cards:
            view.apply_theme(dark)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.appeared.emit()

    def _rebuild(self, cards: Sequence[Card]) -> None:
        for view in self._cards:
            self._column.removeWidget(view)
            view.hide()
            view.setParent(None)
            view.deleteLater()
        self._cards = [_CardView(card, self.offer_taken.emit) for card in cards]
        for place, view in enumerate(self._cards, start=1):
            self._column.insertWidget(place, view)
            view.apply_theme(self._dark)


class _CardView(QFrame):
    """One finding on the screen."""

    def __init__(self, card: Card, take: Callable[[str], None]) -> None:
        super().__init__()
        self.kind = _kind(card)
        severe = card.cause in ("failed", "loss", "growth")
        self._text = _words(f"finding_{card.cause}", "")
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        if severe:
            self._text.setProperty("severity", "problem" if card.cause == "failed" else "warning")
        self._why = _words(f"why_{card.cause}", "")
        self._why.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._cure = _words(f"cure_{card.cause}", "muted")
        self._norms = NormsPlot() if card.norms else None
        self._next = _words(f"next_{card.cause}", "small")
        keep(self._next.setText, "Try next, one at a time:")
        self._buttons = [(QPushButton(), _words(f"obstacle_{offer.name}", "small")) for offer in card.offers]
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self._text)
        column.addWidget(self._why)
        column.addWidget(self._cure)
        if self._norms is not None:
            column.addWidget(self._norms)
        column.addWidget(self._next)
        self._next.setVisible(bool(card.offers))
        for (button, obstacle), offer in zip(self._buttons, card.offers, strict=True):
            button.setObjectName(f"try_{offer.name}")
            button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            button.clicked.connect(lambda _=False, name=offer.name: take(name))
            column.addWidget(button)
            column.addWidget(obstacle)

    def show_card(self, card: Card) -> None:
        """Show ``card``, which is of this view's kind."""
        self._text.setText(card.text)
        self._why.setText(card.why)
        self._why.setVisible(bool(card.why))
        self._cure.setText(card.cure)
        self._cure.setVisible(bool(card.cure))
        if self._norms is not None:
            self._norms.show_norms(card.norms)
        for (button, obstacle), offer in zip(self._buttons, card.offers, strict=True):
            button.setText(offer.words.replace("&", "&&"))
            button.setAccessibleName(offer.words)
            button.setAccessibleDescription(offer.obstacle or card.text)
            button.setToolTip(offer.tip)
            button.setEnabled(not offer.obstacle)
            obstacle.setText(offer.obstacle)
            obstacle.setVisible(bool(offer.obstacle))

    def apply_theme(self, dark: bool) -> None:
        if self._norms is not None:
            self._norms.apply_theme(dark)


def _kind(card: Card) -> tuple[object, ...]:
    """What a view is made for: the rest of a card can change within it."""
    return card.cause, bool(card.norms), tuple(offer.name for offer in card.offers)


def _words(name: str, role: str) -> QLabel:
    label = QLabel()
    label.setObjectName(name)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    if role:
        label.setProperty("role", role)
    # A long word must not widen the dock; it is cut rather.
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    label.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
    return label
