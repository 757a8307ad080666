"""What a person's hands do, by the names of the controls: for commands that use the window by script."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QAbstractButton, QComboBox, QWidget

Control = TypeVar("Control", bound=QWidget)


def choose(window: QWidget, name: str, data: str) -> None:
    """Pick an entry of a combo box by its itemData.

    Raises:
        RuntimeError: the window has no such box, or the box no such entry.
    """
    combo = the(window, QComboBox, name)
    index = combo.findData(data)
    if index < 0:
        raise RuntimeError(f"{name} has no entry {data}")
    combo.setCurrentIndex(index)


def press(window: QWidget, name: str) -> None:
    """Click the button of this name.

    Raises:
        RuntimeError: the window has none.
    """
    the(window, QAbstractButton, name).click()


def the(window: QWidget, kind: type[Control], name: str) -> Control:
    """The control of this name.

    Raises:
        RuntimeError: the window has none.
    """
    control = window.findChild(kind, name)
    if control is None:
        raise RuntimeError(f"the window has no {name}")
    return control
