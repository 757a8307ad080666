"""The table of runs: one row a segment, with its own statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QTableView, QWidget

if TYPE_CHECKING:
    from explorer.results.log import RunLog


class RunsTable(QTableView):
    def __init__(self, log: RunLog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("runs_table")

    def refresh(self) -> None: ...

    def selected(self) -> list[tuple[int, int]]:
        """(run id, segment index) of the selected rows."""
        return []

    def apply_theme(self, dark: bool) -> None: ...
