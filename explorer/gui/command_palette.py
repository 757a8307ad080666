"""Every action of the menus by a few letters of its name."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from explorer.gui.language import tr, without_mnemonic

SIZE_PX = (480, 400)


class CommandPalette(QDialog):
    """Lists the actions that can be done now; Return does the first, or the one that Up and Down chose."""

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("command_palette")
        self.setWindowTitle(tr("Commands"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE_PX)
        self.line = QLineEdit()
        self.line.setObjectName("command_line")
        self.line.setAccessibleName(tr("Commands"))
        self.line.setPlaceholderText(tr("A few letters of what to do"))
        self.list = QListWidget()
        self.list.setObjectName("command_list")
        self.list.setAccessibleName(tr("Commands"))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._actions = {_words(action): action for action in actions if action.isEnabled()}
        column = QVBoxLayout(self)
        column.addWidget(self.line)
        column.addWidget(self.list)
        self.line.textChanged.connect(self._filter)
        self.list.itemClicked.connect(self._do)
        self._filter("")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Down | Qt.Key.Key_Up:
                row = self.list.currentRow() + (1 if event.key() == Qt.Key.Key_Down else -1)
                self.list.setCurrentRow(max(0, min(row, self.list.count() - 1)))
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                item = self.list.currentItem()
                if item is not None:
                    self._do(item)
            case _:
                super().keyPressEvent(event)

    def _filter(self, text: str) -> None:
        wanted = text.lower().split()
        self.list.clear()
        self.list.addItems([words for words in self._actions if all(part in words.lower() for part in wanted)])
        self.list.setCurrentRow(0)

    def _do(self, item: QListWidgetItem) -> None:
        action = self._actions[item.text()]
        self.close()
        action.trigger()


def _words(action: QAction) -> str:
    """Its name and its key where it has one, such as ``Start  (F5)``."""
    name, key = without_mnemonic(action.text()), action.shortcut().toString()
    return f"{name}  ({key})" if key else name
