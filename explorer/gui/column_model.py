"""What the window's tables have in common: columns with a title, a width, a tooltip and a side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from explorer.gui.language import tr

Index = QModelIndex | QPersistentModelIndex
SORT_ROLE = int(Qt.ItemDataRole.UserRole)
"""What a cell sorts by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    widest: str
    """A cell as wide as any to come."""
    tooltip: str = ""
    number: bool = True
    """Right-aligned, as numbers are."""


class ColumnModel(QAbstractTableModel):
    """Rows under the header of ``columns``; a subclass says what stands in them."""

    columns: ClassVar[Sequence[Column]]
    _rows: Sequence[Any]

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  # Qt's own signature
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return tr(column.title)
            case Qt.ItemDataRole.ToolTipRole:
                return tr(column.tooltip) if column.tooltip else None
            case Qt.ItemDataRole.TextAlignmentRole:
                return self.alignment(section)
        return None

    def alignment(self, column: int) -> Qt.AlignmentFlag:
        """Of a cell of ``column``, and of its title."""
        side = Qt.AlignmentFlag.AlignRight if self.columns[column].number else Qt.AlignmentFlag.AlignLeft
        return side | Qt.AlignmentFlag.AlignVCenter

    def reword(self) -> None:
        """Have the header and all that is shown asked for anew, in the language of the moment."""
        last = len(self.columns) - 1
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, last)
        if self._rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self._rows) - 1, last))
