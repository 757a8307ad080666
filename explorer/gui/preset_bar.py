"""The line above the toggles: which preset is set, and the names of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QPushButton, QWidget

from explorer.gui.controls import quiet_wheel, silenced
from explorer.gui.language import later, tr
from explorer.gui.wording import add_item, keep
from explorer.optimizations.presets import PRESETS

PRESET_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "baseline": later("Article baseline"),
        "framework": later("Framework tier"),
        "algorithm": later("Algorithm tier"),
        "system": later("System tier"),
        "everything": later("Everything"),
    }
)
LONGEST_NAME = 40


class PresetBar(QWidget):
    """A combo box of presets, and a line for a name that takes its place while one is asked for.

    Holds no state: ``show_own`` and ``show_current`` redraw it. ``chosen`` carries a preset's name and whether it is
    one of the person's own, ``save_wanted`` the name for the toggles of the moment, ``delete_wanted`` the name to
    forget.
    """

    chosen = Signal(str, bool)
    save_wanted = Signal(str)
    delete_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("preset_bar")
        label = QLabel()
        keep(label.setText, "Preset")
        self.combo = QComboBox()
        self.combo.setObjectName("preset_combo")
        keep(self.combo.setAccessibleName, "Preset")
        keep(self.combo.setPlaceholderText, "none of them")
        keep(self.combo.setToolTip, "Toggles that belong together, set at once, as far as they can run here")
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        for name in PRESETS:
            add_item(self.combo, PRESET_WORDS[name], (name, False))
        label.setBuddy(self.combo)
        quiet_wheel(self.combo)
        self.name = _NameLine()
        self.name.setObjectName("preset_name")
        self.name.setMaxLength(LONGEST_NAME)
        keep(self.name.setAccessibleName, "Name of the preset")
        keep(self.name.setPlaceholderText, "A name, then Return")
        self.name.hide()
        self._save = QPushButton()
        self._save.setObjectName("preset_save")
        keep(self._save.setText, "Save")
        keep(self._save.setToolTip, "Keep the toggles of the moment as a preset of your own (Ctrl+Shift+P)")
        self._delete = QPushButton()
        self._delete.setObjectName("preset_delete")
        keep(self._delete.setText, "Delete")
        keep(self._delete.setToolTip, "Forget this preset of your own (Ctrl+Shift+D)")
        for button in (self._save, self._delete):
            button.setFlat(True)
            button.setFixedWidth(button.fontMetrics().horizontalAdvance(button.text()) + 16)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 12, 0)
        row.setSpacing(8)
        row.addWidget(label)
        row.addWidget(self.combo, 1)
        row.addWidget(self.name, 1)
        row.addWidget(self._save)
        row.addWidget(self._delete)
        self.combo.activated.connect(lambda index: self.chosen.emit(*self.combo.itemData(index)))
        self.name.returnPressed.connect(self._named)
        self.name.given_up.connect(lambda: self._ask(False))
        self._save.clicked.connect(self.save)
        self._delete.clicked.connect(self.delete)

    def show_own(self, names: Sequence[str]) -> None:
        """List the person's own presets below those that there always are."""
        with silenced(self.combo):
            while self.combo.count() > len(PRESETS):
                self.combo.removeItem(self.combo.count() - 1)
            if names:
                self.combo.insertSeparator(self.combo.count())
            for name in names:
                self.combo.addItem(name, (name, True))

    def show_current(self, preset: tuple[str, bool] | None) -> None:
        """Show which preset the settings of the moment are; None: no preset."""
        data = [self.combo.itemData(index) for index in range(self.combo.count())]
        with silenced(self.combo):
            self.combo.setCurrentIndex(data.index(preset) if preset in data else -1)
        self._delete.setEnabled(preset is not None and preset[1])

    def save(self) -> None:
        """Ask for the name to keep the settings of the moment under; a name that is there already is proposed."""
        if not self.name.isVisible():
            name, own = self.combo.currentData() or ("", False)
            self.name.setText(name if own else "")
            self._ask(True)
            self.name.selectAll()
            self.name.setFocus()
        else:
            self._named()

    def delete(self) -> None:
        """Have the person's own preset that is shown forgotten."""
        name, own = self.combo.currentData() or ("", False)
        if own:
            self.delete_wanted.emit(name)

    def reword(self) -> None:
        """Make the buttons as wide as their words."""
        for button in (self._save, self._delete):
            button.setFixedWidth(button.fontMetrics().horizontalAdvance(button.text()) + 16)

    def _named(self) -> None:
        name = " ".join(self.name.text().split())
        if name:
            self._ask(False)
            self.save_wanted.emit(name)

    def _ask(self, asking: bool) -> None:
        had_focus = self.name.hasFocus()
        self.name.setVisible(asking)
        self.combo.setVisible(not asking)
        if had_focus and not asking:
            self.combo.setFocus()


class _NameLine(QLineEdit):
    """``given_up``: by Escape, or by leaving it empty."""

    given_up = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.given_up.emit()
        else:
            super().keyPressEvent(event)


def preset_words(preset: tuple[str, bool]) -> str:
    """The preset's name in the language of the moment."""
    name, own = preset
    return name if own else tr(PRESET_WORDS[name])
