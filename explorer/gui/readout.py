"""Figures and legends that stand above a plot, at a width that does not change with the number."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from explorer.gui.palette import NOTHING, Theme, tabular
from explorer.gui.wording import keep


def coloured(label: QLabel, colour: str) -> None:
    """Give ``label`` a text colour of its own, kept when the application's palette changes."""
    palette = label.palette()
    palette.setColor(QPalette.ColorRole.WindowText, QColor(colour))
    label.setPalette(palette)


class Caption(QLabel):
    """The name of a plot, an English literal: small capitals, muted."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        font = self.font()
        font.setPointSizeF(font.pointSizeF() * 0.85)
        font.setWeight(QFont.Weight.DemiBold)
        font.setLetterSpacing(QFont.SpacingType.PercentageSpacing, 108)
        self.setFont(font)
        keep(self.show_text, text)

    def show_text(self, text: str) -> None:
        """Show ``text`` in capitals."""
        self.setText(text.upper())

    def apply_theme(self, look: Theme) -> None:
        coloured(self, look.muted)


class Readout(QWidget):
    """A number and its unit, such as ``174.4k`` ``tokens/s``; a dash until there is one. Words are English literals.

    ``widest``: a number as wide as any to come. ``scale``: size of the number against the application's font.
    ``meaning`` is its tooltip and what a screen reader calls it. ``lead`` stands before the number.
    """

    def __init__(
        self,
        meaning: str,
        unit: str,
        *,
        widest: str,
        lead: str = "",
        scale: float = 1.0,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        keep(self.setAccessibleName, meaning)
        keep(self.setToolTip, meaning)
        self._patch = QLabel(self)
        self._patch.setFixedSize(10, 10)
        self._patch.setAutoFillBackground(True)
        self._patch.hide()
        self._lead = QLabel(self)
        keep(self._lead.setText, lead)
        self._lead.setVisible(bool(lead))
        self._value = QLabel(NOTHING, self)
        self._unit = QLabel(self)
        keep(self._unit.setText, unit)
        font = tabular(self.font())
        font.setPointSizeF(font.pointSizeF() * scale)
        font.setWeight(QFont.Weight.DemiBold if scale > 1 else QFont.Weight.Medium)
        self._value.setFont(font)
        self._value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBaseline)
        self._value.setFixedWidth(QFontMetrics(font).horizontalAdvance(widest) + 2)
        self._unit.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBaseline)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(5)
        row.addWidget(self._patch, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self._lead, 0, Qt.AlignmentFlag.AlignBaseline)
        row.addWidget(self._value, 0, Qt.AlignmentFlag.AlignBaseline)
        row.addWidget(self._unit, 0, Qt.AlignmentFlag.AlignBaseline)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._wanted = self._fits = True

    @property
    def wanted(self) -> bool:
        """Whether it is to be seen where there is room."""
        return self._wanted

    def set_fits(self, fits: bool) -> None:
        """Whether there is room for it."""
        if fits != self._fits:
            self._fits = fits
            super().setVisible(self._wanted and fits)

    def setVisible(self, visible: bool) -> None:
        self._wanted = visible
        super().setVisible(visible and self._fits)

    def show_number(self, number: str, unit: str | None = None, **values: str) -> None:
        """Show ``number``; ``unit`` replaces the unit where it is given, with ``values`` in its {places}."""
        if unit is not None:
            keep(self._unit.setText, unit, **values)
        if number != self._value.text():
            self._value.setText(number)
            self.setAccessibleDescription(self.text())

    def show_meaning(self, meaning: str) -> None:
        """Explain the number otherwise from now on; ``meaning``: an English literal."""
        keep(self.setAccessibleName, meaning)
        keep(self.setToolTip, meaning)

    def show_patch(self, colour: QColor | None) -> None:
        """A patch of ``colour`` before the number: the legend of the curve that it belongs to. None: no patch."""
        if colour is None:
            self._patch.hide()
            return
        palette = self._patch.palette()
        palette.setColor(QPalette.ColorRole.Window, colour)
        self._patch.setPalette(palette)
        self._patch.show()

    def text(self) -> str:
        """Number and unit as they stand on the screen."""
        return f"{self._value.text()} {self._unit.text()}"

    def apply_theme(self, look: Theme) -> None:
        coloured(self._value, look.text)
        coloured(self._unit, look.muted)
        coloured(self._lead, look.muted)


class Readouts(QWidget):
    """Readouts in a row, whole ones only: the last that do not fit are left out rather than cut."""

    def __init__(
        self, readouts: tuple[Readout, ...], *, caption: Caption | None = None, side: tuple[QWidget, ...] = ()
    ) -> None:
        """``caption`` stands before them, ``side`` behind: its first takes the rest of the row and needs none."""
        super().__init__()
        self._readouts = readouts
        self._beside = side[1:]
        # It must not keep the window from being made narrow.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._row = row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        self._before = () if caption is None else (caption,)
        for widget in (*self._before, *readouts):
            row.addWidget(widget, 0, Qt.AlignmentFlag.AlignBaseline)
        for index, widget in enumerate(side):
            row.addWidget(widget, 0 if index else 1, Qt.AlignmentFlag.AlignVCenter)
        if not side:
            row.addStretch(1)

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self._fit()
        return super().event(event)

    def _fit(self) -> None:
        gap = self._row.spacing()
        others = [*self._before, *(widget for widget in self._beside if not widget.isHidden())]
        needed = sum(widget.sizeHint().width() + gap for widget in others) - gap
        for readout in self._readouts:
            needed += (readout.sizeHint().width() + gap) * readout.wanted
            readout.set_fits(needed <= self.width())


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of a legend."""

    words: str
    colour: QColor
    width: float = 1.0
    style: Qt.PenStyle = Qt.PenStyle.SolidLine


class Legend(QWidget):
    """Line and words for each curve, in one row."""

    _SWATCH = 18
    _GAP = 14

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._keys: tuple[Key, ...] = ()
        self._text_colour = self.palette().windowText().color()
        font = self.font()
        font.setPointSizeF(font.pointSizeF() * 0.9)
        self.setFont(font)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def show_keys(self, keys: tuple[Key, ...], look: Theme) -> None:
        self._keys = keys
        self._text_colour = QColor(look.muted)
        self.setAccessibleDescription(", ".join(key.words for key in keys))
        self.updateGeometry()
        self.update()

    def words(self) -> list[str]:
        return [key.words for key in self._keys]

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self.font())
        width = sum(self._SWATCH + 5 + metrics.horizontalAdvance(key.words) + self._GAP for key in self._keys)
        return QSize(max(width - self._GAP, 0), metrics.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, QFontMetrics(self.font()).height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        metrics = QFontMetrics(self.font())
        # Whole entries only: one that does not fit is left out rather than cut.
        x, middle = 0, self.height() / 2
        for key in self._keys:
            width = self._SWATCH + 5 + metrics.horizontalAdvance(key.words)
            if x + width > self.width():
                break
            painter.setPen(QPen(key.colour, key.width, key.style, Qt.PenCapStyle.FlatCap))
            painter.drawLine(QPointF(x, middle), QPointF(x + self._SWATCH, middle))
            painter.setPen(self._text_colour)
            painter.drawText(
                x + self._SWATCH + 5, round(middle + (metrics.ascent() - metrics.descent()) / 2), key.words
            )
            x += width + self._GAP
        painter.end()
