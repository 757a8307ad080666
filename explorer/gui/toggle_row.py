"""One toggle in the panel: its name, its levels, and a line of fixed height that explains the one chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from explorer.gui.controls import quiet_wheel, select_data, set_item_enabled
from explorer.gui.language import tr
from explorer.gui.wording import add_item, keep
from explorer.optimizations.base import Optimization

FOOT_HEIGHT_PX = 38
FIX_HEIGHT_PX = 22
COMBO_WIDTH_PX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change of another toggle that resolves a conflict."""

    name: str
    level: str
    text: str
    """What the button says."""
    reason: str
    """Why it is needed, in one line."""


class ToggleRow(QWidget):
    """Shows one Optimization. Holds no state of its own: ``show_level`` redraws it.

    ``chosen`` carries the level's id, ``looked_at`` says that the row got the focus or the pointer.
    """

    chosen = Signal(str)
    looked_at = Signal()
    remedy_wanted = Signal(object)
    """Remedy"""

    def __init__(self, optimization: Optimization, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._optimization = optimization
        self._remedy: Remedy | None = None
        self._label = QLabel()
        keep(self._label.setText, optimization.label)
        self.combo = QComboBox()
        self.combo.setObjectName(f"toggle_{optimization.name}")
        keep(self.combo.setAccessibleName, optimization.label)
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.combo.setMinimumContentsLength(9)
        for level in optimization.levels:
            add_item(self.combo, level.label, level.id)
        self._label.setBuddy(self.combo)
        self._line = QLabel()
        self._line.setObjectName(f"toggle_{optimization.name}_line")
        self._line.setProperty("role", "small")
        self._line.setTextFormat(Qt.TextFormat.PlainText)
        self._line.setWordWrap(True)
        self._line.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self._line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self._fix = QPushButton()
        self._fix.setObjectName(f"toggle_{optimization.name}_fix")
        self._fix.setFixedHeight(FIX_HEIGHT_PX)
        self._fix.hide()
        self._fix.clicked.connect(self._want_remedy)
        self.combo.setFixedWidth(COMBO_WIDTH_PX)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self._label, 1)
        head.addWidget(self.combo)
        foot = QWidget()
        foot.setFixedHeight(FOOT_HEIGHT_PX)
        below = QVBoxLayout(foot)
        below.setContentsMargins(0, 0, 0, 0)
        below.setSpacing(0)
        below.addWidget(self._line, 1)
        below.addWidget(self._fix, 0, Qt.AlignmentFlag.AlignRight)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 2, 0, 0)
        column.setSpacing(2)
        column.addLayout(head)
        column.addWidget(foot)
        quiet_wheel(self.combo)
        self.combo.installEventFilter(self)
        self.combo.currentIndexChanged.connect(lambda: self.chosen.emit(self.combo.currentData()))
        self.show_levels(lambda _level: None)

    def show_levels(self, unavailable: Callable[[str], str | None]) -> None:
        """Grey the levels that ``unavailable`` gives a reason for."""
        for index, level in enumerate(self._optimization.levels):
            set_item_enabled(self.combo, index, reason=unavailable(level.id), tooltip=tr(level.help))

    def show_level(self, level: str, *, idle: str | None, problem: str | None, remedy: Remedy | None) -> None:
        """Redraw: ``idle`` says why the toggle plays no part now, ``problem`` why its level cannot run."""
        select_data(self.combo, level)
        self.combo.setEnabled(idle is None)
        self._label.setEnabled(idle is None)
        words = idle or problem or tr(self._optimization.level(level).help)
        tip = f"<p>{idle}</p>{tooltip(self._optimization)}" if idle else tooltip(self._optimization)
        self.combo.setToolTip(tip)
        self._label.setToolTip(tooltip(self._optimization))
        self.combo.setAccessibleDescription(words)
        self._line.setText(words)
        self._line.setToolTip(words)
        severity = "warning" if problem and not idle else ""
        if self._line.property("severity") != severity:
            self._line.setProperty("severity", severity)
            self._line.style().unpolish(self._line)
            self._line.style().polish(self._line)
        self._remedy = remedy if problem and not idle else None
        if self._remedy is not None:
            # One line is left beside the button: the reason alone, without the levels that the button names.
            metrics = self._line.fontMetrics()
            width = self.combo.geometry().right() if self.isVisible() else 2 * COMBO_WIDTH_PX
            self._line.setText(metrics.elidedText(self._remedy.reason, Qt.TextElideMode.ElideRight, width))
            self._fix.setText(self._remedy.text)
            self._fix.setAccessibleName(self._remedy.text)
        self._line.setWordWrap(self._remedy is None)
        self._fix.setVisible(self._remedy is not None)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.Enter):
            self.looked_at.emit()
        return super().eventFilter(watched, event)

    def _want_remedy(self) -> None:
        if self._remedy is not None:
            self.remedy_wanted.emit(self._remedy)


def tooltip(optimization: Optimization) -> str:
    """What it does, what it costs, what to expect and where to read on."""
    help_text, cost, expect, source = (
        escape(tr(words)) for words in (optimization.help, optimization.cost, optimization.expect, optimization.source)
    )
    return (
        f"<b>{escape(tr(optimization.label))}</b><p>{help_text}</p><p><b>{tr('Costs')}</b> {cost}</p>"
        f"<p><b>{tr('Expect')}</b> {expect}</p><p><b>{tr('Source')}</b> {source}</p>"
    )
