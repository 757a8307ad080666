"""Small pieces that the panels share: quiet wheels, captions, and redrawing without feedback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QLabel, QSizePolicy, QSplitter, QVBoxLayout, QWidget

from explorer.gui.wording import keep


class _QuietWheel(QObject):
    """Keeps the mouse wheel from changing a control that the pointer merely passes over."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return False


class ElidedLabel(QLabel):
    """One line of plain text that ends in … where there is no room; ``text`` stays the whole."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        room = self.contentsRect()
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room.width())
        self.style().drawItemText(
            painter, room, int(self.alignment()), self.palette(), self.isEnabled(), shown, self.foregroundRole()
        )
        painter.end()


def quiet_wheel(control: QWidget) -> None:
    """Let ``control`` take the wheel only while it has the focus."""
    control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    control.installEventFilter(_QuietWheel(control))


@contextmanager
def silenced(*objects: QObject) -> Iterator[None]:
    """No signals from ``objects`` within: they are being redrawn, nobody has touched them."""
    before = [item.blockSignals(True) for item in objects]
    try:
        yield
    finally:
        for item, blocked in zip(objects, before, strict=True):
            item.blockSignals(blocked)


def divided(orientation: Qt.Orientation, *parts: tuple[QWidget, int]) -> QSplitter:
    """``parts``, each with its share of what room is left, between lines that can be dragged; none can be hidden."""
    splitter = QSplitter(orientation)
    for index, (part, share) in enumerate(parts):
        splitter.addWidget(part)
        splitter.setStretchFactor(index, share)
    splitter.setChildrenCollapsible(False)
    return splitter


def captioned(caption: str, control: QWidget, *, name: str) -> QWidget:
    """``control`` under a small caption; ``name`` is what a screen reader says. All words are English literals."""
    label = QLabel()
    keep(label.setText, caption)
    label.setProperty("role", "caption")
    label.setBuddy(control)
    keep(control.setAccessibleName, name)
    box = QWidget()
    column = QVBoxLayout(box)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(2)
    column.addWidget(label)
    column.addWidget(control)
    return box


def set_item_enabled(combo: QComboBox, index: int, *, reason: str | None, tooltip: str = "") -> None:
    """Grey item ``index`` of ``combo`` with ``reason``, or let it be chosen where that is None."""
    model = combo.model()
    assert isinstance(model, QStandardItemModel)
    item = model.item(index)
    item.setEnabled(reason is None)
    item.setToolTip(reason or tooltip)
    item.setData(reason or tooltip, Qt.ItemDataRole.AccessibleDescriptionRole)


def select_data(combo: QComboBox, data: object) -> bool:
    """Make the item that carries ``data`` current, without a signal; False where there is none."""
    index = combo.findData(data)
    if index < 0:
        return False
    with silenced(combo):
        combo.setCurrentIndex(index)
    return True
