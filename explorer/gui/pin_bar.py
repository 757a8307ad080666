"""The two pinned configurations beside the tabs, and the button that compares them."""

from __future__ import annotations

import re

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import (
    QHBoxLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QStyle,
    QStyleOptionToolButton,
    QStylePainter,
    QToolButton,
    QWidget,
)

from explorer.config import RunConfig
from explorer.experiments.arms import names
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import A_STYLE, B_STYLE, a_colour, b_colour
from explorer.gui.pins import LETTERS, Arm, Pins
from explorer.gui.wording import keep

CHIP_WIDTH_PX = 240
LEAST_CHIP_WIDTH_PX = 60
LEAST_LETTERS = 4
"""Fewer say nothing: then the arm's letter stands alone."""
MOST = 1000
"""Share of the room that chips take before any is left empty."""
HEIGHT_PX = 26
SWATCH_PX = QSize(22, 12)
BESIDE_WORDS_PX = 16
"""The frame, the swatch's distance and the arrow."""
_FROM = re.compile(r"\w+ \S+ → ")
"""What a level was, such as ``precision fp32 → `` before ``bf16``."""


class PinBar(QWidget):
    """Two chips and a button. Holds no state: ``show_pins`` redraws it.

    ``pin_wanted`` carries the arm that the settings of the moment are to be, ``settings_wanted`` the arm whose
    settings are to be taken over, ``release_wanted`` the arm to let go.
    """

    pin_wanted = Signal(int)
    settings_wanted = Signal(int)
    release_wanted = Signal(int)
    compare_wanted = Signal()
    stop_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("pin_bar")
        self._dark = False
        self._comparing = False
        self.chips = (self._chip(0), self._chip(1))
        self.compare = QPushButton()
        self.compare.setObjectName("compare_button")
        self.compare.setFixedHeight(HEIGHT_PX)
        self.compare.clicked.connect(self._press)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 4, 0)
        row.setSpacing(6)
        row.addStretch(1)
        for chip in self.chips:
            row.addWidget(chip, MOST)
        row.addWidget(self.compare)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.show_pins(Pins(), RunConfig())
        self.show_state(comparing=False)

    def show_pins(self, pins: Pins, current: RunConfig) -> None:
        """Redraw the chips; ``current`` is what B stands for while it is not pinned."""
        pinned = (pins.a, pins.b)
        a, b = map(from_below, names((pins.a or current, pins.b or current)))
        now = b if pins.a is not None and pins.a != current else tr("the settings")
        words = (
            a if pins.a is not None else tr("not pinned"),
            b if pins.b is not None else tr("now: {what}", what=now),
        )
        follows = tr("now") if pins.a is None or pins.a == current else b
        short = (a if pins.a is not None else tr("pin…"), b if pins.b is not None else follows)
        for chip, letter, config, said, brief in zip(self.chips, LETTERS, pinned, words, short, strict=True):
            chip.show_words(
                f"{letter}  {said.replace(' -> ', ' → ')}",
                short=f"{letter} {_FROM.sub('', brief.replace(' -> ', ' → '))}",
            )
            for action in chip.actions()[1:]:  # all but pinning itself
                action.setEnabled(config is not None)
        self.compare.setEnabled(self._comparing or pins.a is not None)
        self._explain(pins.a is not None)

    def show_state(self, *, comparing: bool) -> None:
        """Let the button compare, or stop what it has begun."""
        self._comparing = comparing
        self.compare.setText(tr("■  Stop") if comparing else tr("Compare"))
        self._explain(self.compare.isEnabled())

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        for chip, colour, style in zip(self.chips, (a_colour(dark), b_colour(dark)), (A_STYLE, B_STYLE), strict=True):
            chip.setIcon(swatch(colour, style))

    def _explain(self, ready: bool) -> None:
        if self._comparing:
            words = tr("Stop the comparison; what was measured is judged (Shift+F5)")
        elif ready:
            words = tr("Is B faster than A? Both by turns in blocks, until the interval is narrow (F6)")
        else:
            words = tr("Pin the settings of the moment as A first (Ctrl+Shift+A), then change a toggle")
        self.compare.setToolTip(words)
        self.compare.setAccessibleDescription(words)

    def _chip(self, arm: Arm) -> _Chip:
        letter = LETTERS[arm]
        chip = _Chip()
        chip.setObjectName(f"pin_{letter.lower()}_button")
        chip.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        chip.setIconSize(SWATCH_PX)
        chip.setFixedHeight(HEIGHT_PX)
        chip.setMinimumWidth(LEAST_CHIP_WIDTH_PX)
        chip.setMaximumWidth(CHIP_WIDTH_PX)
        chip.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        chip.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        chip.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(chip)
        for name, words, signal in (
            ("chip_pin", later("Pin the settings of the moment as {arm}"), self.pin_wanted),
            ("chip_settings", later("Go to the settings of {arm}"), self.settings_wanted),
            ("chip_release", later("Let go of {arm}"), self.release_wanted),
        ):
            action = menu.addAction("")
            keep(action.setText, words, arm=letter)
            action.setObjectName(f"{name}_{letter.lower()}_action")
            action.triggered.connect(lambda _=False, signal=signal: signal.emit(arm))
            chip.addAction(action)
        chip.setMenu(menu)
        return chip

    def _press(self) -> None:
        if self._comparing:
            self.stop_wanted.emit()
        else:
            self.compare_wanted.emit()


class _Chip(QToolButton):
    """Shows its text where there is room, or else its short form, or of that what there is room for."""

    def __init__(self) -> None:
        super().__init__()
        self._short = ""

    def show_words(self, whole: str, *, short: str) -> None:
        self._short = short
        self.setText(whole)
        self.setToolTip(whole)
        self.setAccessibleName(whole)

    def said(self) -> str:
        """What can be read on it; at least the arm's letter."""
        metrics, room = self.fontMetrics(), self.width() - SWATCH_PX.width() - BESIDE_WORDS_PX
        if metrics.horizontalAdvance(self.text()) <= room:
            return self.text()
        said = metrics.elidedText(self._short, Qt.TextElideMode.ElideRight, room)
        return said if said == self._short or len(said) > LEAST_LETTERS else self._short[:1]

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QStyleOptionToolButton()
        self.initStyleOption(option)
        option.text = self.said()
        QStylePainter(self).drawComplexControl(QStyle.ComplexControl.CC_ToolButton, option)


def swatch(colour: QColor, style: Qt.PenStyle) -> QIcon:
    """A short piece of an arm's line."""
    pixmap = QPixmap(SWATCH_PX)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setPen(QPen(colour, 3, style))
    painter.drawLine(0, SWATCH_PX.height() // 2, SWATCH_PX.width(), SWATCH_PX.height() // 2)
    painter.end()
    return QIcon(pixmap)
