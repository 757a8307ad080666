"""The list of stored runs as a table that can be sorted and filtered by words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PySide6.QtCore import QObject, QSortFilterProxyModel, Qt

from explorer.gui.column_model import SORT_ROLE, Column, ColumnModel, Index
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import NOTHING, gib, si_number
from explorer.gui.runs_model import STATES, WORKLOADS
from explorer.optimizations.registry import baseline_levels
from explorer.results.stored import StoredRun

ID_ROLE = SORT_ROLE + 1

COLUMNS = (
    Column(title=later("Run"), widest="88888", tooltip=later("The number that it is stored by")),
    Column(title=later("Started"), widest="2026-08-28 08:08", number=False),
    Column(title=later("What differs"), widest="+ precision bf16 + attention sdpa + gelu triton", number=False),
    Column(title=later("Workload"), widest="generate", number=False),
    Column(title=later("Model"), widest="gpt2-medium", number=False),
    Column(title=later("Device"), widest="NVIDIA GeForce RTX 4090", number=False),
    Column(title=later("Steps"), widest="8,888,888"),
    Column(
        title=later("tokens/s"),
        widest="~ 888.8k",
        tooltip=later("Median of the last segment's steps after warm-up"),
    ),
    Column(
        title=later("Peak"),
        widest="888.8 MiB",
        tooltip=later("Largest sum of live tensors within a step of the last segment"),
    ),
    Column(title=later("State"), widest="incomplete", number=False),
    Column(
        title=later("From"), widest="some-bundle.zip", tooltip=later("The bundle or CSV that it came in"), number=False
    ),
)


@dataclass(frozen=True)
class _Row:
    """Of ten thousand runs few are looked at: what a row shows is made when it is asked for."""

    line: StoredRun
    baseline: Mapping[str, str]
    """Each toggle's first level."""

    @cached_property
    def _shown(self) -> tuple[tuple[str, Any], ...]:
        """Each cell, and what it sorts by, or None: by itself."""
        line = self.line
        rate = si_number(line.tokens_per_s)
        label = from_below(line.label(self.baseline))
        if line.segments > 1:
            label = tr("{label} ({count} settings, its last)", label=label, count=line.segments)
        return (
            (str(line.id), line.id),
            (line.started_at[:16].replace("T", " "), None),
            (label, None),
            (tr(WORKLOADS[line.config.workload]), None),
            (line.config.model.rstrip("/").rsplit("/", 1)[-1], None),
            (line.device_name or line.config.device, None),
            (f"{line.samples:,}", line.samples),
            (rate if line.settled or rate == NOTHING else f"~ {rate}", line.tokens_per_s),
            (gib(line.peak_allocated_bytes), line.peak_allocated_bytes),
            (tr(STATES[line.outcome]), None),
            (line.origin or "", None),
        )

    def cell(self, column: int) -> str:
        return self._shown[column][0]

    def key(self, column: int) -> Any:
        """What the cell sorts by."""
        if column == 0:
            return self.line.id
        cell, key = self._shown[column]
        # NaN has no order: what was not measured comes first.
        return cell if key is None else -1.0 if math.isnan(key) else key

    @cached_property
    def words(self) -> str:
        """What the filter looks in, in small letters."""
        return " ".join(cell for cell, _ in self._shown).lower()


class StoredModel(ColumnModel):
    """Stored runs, a row each.

    It sorts by itself: a proxy of Qt's asks for the values of two cells a comparison, half a second for 10,000 runs.
    """

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[_Row] = []
        self._sorted_by = (0, Qt.SortOrder.AscendingOrder)

    def show_runs(self, runs: Sequence[StoredRun]) -> None:
        """Replace the rows."""
        self.beginResetModel()
        baseline = baseline_levels()
        self._rows = [_Row(line, baseline) for line in runs]
        self._arrange()
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Put the rows in the order of ``column``; those that are selected stay so."""
        self._sorted_by = column, order
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        rows = [self._rows[index.row()] for index in before]
        self._arrange()
        places = {row.line.id: place for place, row in enumerate(self._rows)}
        after = [self.index(places[row.line.id], of.column()) for row, of in zip(rows, before, strict=True)]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _arrange(self) -> None:
        column, order = self._sorted_by
        self._rows.sort(key=lambda row: row.key(column), reverse=order == Qt.SortOrder.DescendingOrder)

    def words(self, row: int) -> str:
        """All that a row says, in small letters."""
        return self._rows[row].words

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role == ID_ROLE:
            return row.line.id
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.cell(index.column())
            case Qt.ItemDataRole.ToolTipRole:
                return from_below(row.line.problem or "") or row.cell(index.column())
            case Qt.ItemDataRole.TextAlignmentRole:
                return self.alignment(index.column())
        return None


class WordFilter(QSortFilterProxyModel):
    """The rows of a ``StoredModel`` that have every one of some words, whatever their case."""

    def __init__(self, model: StoredModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._wanted: tuple[str, ...] = ()
        self.setSourceModel(model)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._model.sort(column, order)

    def set_words(self, text: str) -> None:
        """Show only rows with all the words of ``text``."""
        wanted = tuple(text.lower().split())
        if wanted != self._wanted:
            self._wanted = wanted
            self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        if not self._wanted:
            return True
        words = self._model.words(row)
        return all(word in words for word in self._wanted)
