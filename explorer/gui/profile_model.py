"""The kernels of a profile as a table that can be sorted."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, Qt

from explorer.gui.column_model import SORT_ROLE, Column, ColumnModel, Index
from explorer.gui.language import later, tr
from explorer.results.kernel_kinds import KINDS
from explorer.results.proof import short_name
from explorer.results.step_profile import REST, KernelTime, StepProfile

COLUMNS = (
    Column(title=later("Kernel"), widest="_scaled_dot_product_flash_attention", number=False),
    Column(title=later("What it does"), widest=max(KINDS, key=len), number=False),
    Column(title="ms", widest="8,888.888", tooltip=later("Of all its executions together")),
    Column(title=later("of what ran"), widest="88.8%"),
    Column(title=later("Count"), widest="88,888", tooltip=later("Executions, in a step or the whole text")),
    Column(title=later("µs each"), widest="888,888.8", tooltip=later("Microseconds of one execution")),
    Column(title=later("Most in"), widest=REST, number=False, tooltip=later("Where it ran the longest")),
)


class ProfileModel(ColumnModel):
    """A row a kernel, on the CPU an operator; the longest first, until the person sorts them."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._profile: StepProfile | None = None
        self._rows: tuple[KernelTime, ...] = ()

    def show_profile(self, profile: StepProfile | None) -> None:
        """Show the kernels of ``profile``; None: nothing."""
        self.beginResetModel()
        self._profile = profile
        self._rows = () if profile is None else profile.kernels
        self.endResetModel()

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self._profile is None:
            return None
        kernel, column = self._rows[index.row()], index.column()
        each = self._profile.rounds
        figures = (
            kernel.total_ms / each,
            kernel.total_ms / (self._profile.busy_ms + self._profile.overlap_ms),
            kernel.count / each,
            kernel.each_us,
        )
        match role:
            case Qt.ItemDataRole.DisplayRole:
                numbers = (f"{x:{form}}" for x, form in zip(figures, (",.3f", ".1%", ",.0f", ",.1f"), strict=True))
                return (short_name(kernel.name), tr(kernel.kind), *numbers, tr(kernel.part))[column]
            case Qt.ItemDataRole.ToolTipRole:
                return kernel.name
            case Qt.ItemDataRole.TextAlignmentRole:
                return self.alignment(column)
        return (short_name(kernel.name), kernel.kind, *figures, kernel.part)[column] if role == SORT_ROLE else None
