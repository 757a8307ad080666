"""The two configurations that are to be compared: what the person pinned as A and as B."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QObject, Signal

from explorer.config import RunConfig

Arm = Literal[0, 1]
"""0 is A, 1 is B."""
LETTERS = ("A", "B")


class Pins(QObject):
    """A and B; what is not pinned is None. Where only A is, B stands for the settings of the moment."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._pinned: list[RunConfig | None] = [None, None]

    @property
    def a(self) -> RunConfig | None:
        return self._pinned[0]

    @property
    def b(self) -> RunConfig | None:
        return self._pinned[1]

    def pin(self, arm: Arm, config: RunConfig | None) -> None:
        """Make ``config`` A or B; None lets go of it."""
        if self._pinned[arm] != config:
            self._pinned[arm] = config
            self.changed.emit()

    def swap(self) -> None:
        """Make A what was B and the other way round."""
        if self._pinned[0] != self._pinned[1]:
            self._pinned.reverse()
            self.changed.emit()
