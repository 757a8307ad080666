"""Words that stay with what shows them, so that the language can change while the window is open."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QComboBox, QGraphicsView

from explorer.gui.language import tr

_KEPT = "kept_"
_ITEM_WORDS = 0x0100 + 64
"""Role of a combo box's item under which its English words lie; far from Qt's own and the window's."""


def keep(show: Callable[[str], object], words: str, **values: str) -> None:
    """Show ``words``, an English literal, by ``show`` now, and again whenever the language changes.

    ``show`` is a method of a QObject, such as ``label.setText``. The words lie in a property of that object: they go
    when it goes.
    """
    target: QObject = show.__self__  # type: ignore[attr-defined]  # what every bound method has
    target.setProperty(_KEPT + show.__name__, [words, values])
    show(tr(words, **values))


def add_item(combo: QComboBox, words: str, data: object) -> None:
    """Add an item whose text is ``words``, an English literal, in the language of the moment."""
    combo.addItem(tr(words), data)
    combo.setItemData(combo.count() - 1, words, _ITEM_WORDS)


def retranslate(root: QObject) -> None:
    """Show all kept words below ``root``, and its own, in the language of the moment."""
    objects = [root, *root.findChildren(QObject)]
    for view in root.findChildren(QGraphicsView):
        objects += [item for item in view.items() if isinstance(item, QObject)]
    for item in objects:
        for name in (bytes(name.data()).decode() for name in item.dynamicPropertyNames()):
            if name.startswith(_KEPT):
                words, values = item.property(name)
                getattr(item, name.removeprefix(_KEPT))(tr(words, **values))
        if isinstance(item, QComboBox):
            _retranslate_items(item)


def _retranslate_items(combo: QComboBox) -> None:
    blocked = combo.blockSignals(True)
    for index in range(combo.count()):
        words = combo.itemData(index, _ITEM_WORDS)
        if words is not None:
            combo.setItemText(index, tr(words))
    combo.blockSignals(blocked)
