"""The rows of the kernel lab as a table that can be sorted: a row a variant, those of one case beside each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QModelIndex, QObject, Qt

from explorer.gui.column_model import SORT_ROLE, Column, ColumnModel, Index
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import NOTHING, gib
from explorer.results.lab import Case, LabRow
from explorer.results.lab_words import name_of

OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        "measured": later("measured"),
        "runs": later("runs"),
        "refused": later("refused"),
        "out of memory": later("out of memory"),
        "failed": later("failed"),
    }
)
COLUMNS = (
    Column(title=later("Operation"), widest="add_layer_norm_backward", number=False),
    Column(title=later("Format"), widest="bfloat16", number=False),
    Column(title=later("Shape"), widest="8x12x16384x64 causal", number=False),
    Column(title=later("Variant"), widest="transformers' own", number=False),
    Column(title="µs", widest="8,888,888.8", tooltip=later("Median time of the operation alone, in microseconds")),
    Column(title="±", widest="88.8%", tooltip=later("Distance of the quartiles over the median")),
    Column(
        title=later("of the fastest"), widest="88.88x", tooltip=later("Time over that of the case's fastest variant")
    ),
    Column(
        title=later("host us"), widest="8,888.8", tooltip=later("What one call costs the host, which waits for nothing")
    ),
    Column(title="GB/s", widest="8,888", tooltip=later("Bytes that must be moved at least, over the time")),
    Column(title="TFLOP/s", widest="888.8", tooltip=later("Arithmetic that must be done, over the time")),
    Column(
        title=later("of the ceiling"),
        widest="888%",
        tooltip=later(
            "The time that a copy of as many bytes takes, or the products where they take longer, over the time"
        ),
    ),
    Column(title=later("Error"), widest="8.8e-88", tooltip=later("Against float64, as a share of the result's norm")),
    Column(title=later("Peak"), widest="888.8 MiB", tooltip=later("Memory during a call, above what was held before")),
    Column(title=later("State"), widest="out of memory", number=False),
)
_LAST = math.inf
"""What is not known is sorted behind what is."""


class LabModel(ColumnModel):
    """Rows in the order in which they were measured, until the person sorts them."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[LabRow] = []
        self._fastest_us: dict[Case, float] = {}

    def show_rows(self, rows: Sequence[LabRow]) -> None:
        """Show ``rows``; those that stand there already stay selected and where they are."""
        old = len(self._rows)
        if list(rows[:old]) != self._rows:
            self.beginResetModel()
            self._take(rows)
            self.endResetModel()
            return
        if len(rows) > old:
            self.beginInsertRows(QModelIndex(), old, len(rows) - 1)
            self._take(rows)
            self.endInsertRows()
            self.dataChanged.emit(self.index(0, 0), self.index(old, len(COLUMNS) - 1))

    def row_at(self, place: int) -> LabRow:
        return self._rows[place]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self._rows[index.row()], index.column()
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._cells(row)[column]
            case Qt.ItemDataRole.ToolTipRole:
                return from_below(row.problem) or f"{row.case}: {tr(name_of(row.variant))}"
            case Qt.ItemDataRole.TextAlignmentRole:
                return self.alignment(column)
        return self._keys(row)[column] if role == SORT_ROLE else None

    def _take(self, rows: Sequence[LabRow]) -> None:
        self._rows = list(rows)
        self._fastest_us = {}
        for row in rows:
            if math.isfinite(row.time_us):
                self._fastest_us[row.case] = min(row.time_us, self._fastest_us.get(row.case, math.inf))

    def _of_fastest(self, row: LabRow) -> float:
        return row.time_us / self._fastest_us.get(row.case, math.nan)

    def _cells(self, row: LabRow) -> tuple[str, ...]:
        return (
            row.case.operation,
            row.case.dtype,
            row.case.shape_words,
            tr(name_of(row.variant)),
            _number(row.time_us, ",.1f"),
            _number(row.spread, ".1%"),
            _number(self._of_fastest(row), ".2f", "x"),
            _number(row.host_us, ",.1f"),
            _number(row.gb_per_s, ",.0f"),
            _number(row.tflop_per_s, ",.1f"),
            _number(row.ceiling_fraction, ".0%"),
            _number(row.rel_error, ".1e"),
            gib(row.peak_bytes),
            tr(OUTCOMES[row.outcome]),
        )

    def _keys(self, row: LabRow) -> tuple[Any, ...]:
        figures = (
            row.time_us,
            row.spread,
            self._of_fastest(row),
            row.host_us,
            row.gb_per_s,
            row.tflop_per_s,
            row.ceiling_fraction,
            row.rel_error,
            row.peak_bytes if row.peak_bytes >= 0 else math.nan,
        )
        shape = " ".join(f"{size:012d}" for size in row.case.shape) + row.case.detail
        known = (value if math.isfinite(value) else _LAST for value in figures)
        return (row.case.operation, row.case.dtype, shape, name_of(row.variant), *known, row.outcome)


def _number(value: float, form: str, unit: str = "") -> str:
    return format(value, form) + unit if math.isfinite(value) else NOTHING
