"""The two pinned configurations beside the tabs, and the button that compares them."""

from __future__ import annotations

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

CHIP_WIDTH_PX = 152
LEAST_CHIP_WIDTH_PX = 60
LEAST_LETTERS = 5
"""Fewer say nothing: then the arm's letter stands alone."""
MOST = 1000
"""Share of the room that chips take before any is left empty."""
HEIGHT_PX = 26
SWATCH_PX = QSize(22, 12)


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
        for chip, letter, config, said in zip(self.chips, LETTERS, pinned, words, strict=True):
            text = f"{letter}  {said.replace(' -> ', ' → ')}"
            chip.setText(text)
            chip.setToolTip(text)
            chip.setAccessibleName(text)
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

    def _chip(self, arm: Arm) -> QToolButton:
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
    """Shows of its text what there is room for, at least the arm's letter."""

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QStyleOptionToolButton()
        self.initStyleOption(option)
        room = self.width() - SWATCH_PX.width() - 26
        said = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room)
        option.text = said if len(said) > LEAST_LETTERS else self.text()[:1]
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
