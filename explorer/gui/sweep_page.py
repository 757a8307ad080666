"""The sweep: maps of throughput and memory by batch and sequence length; out of memory is a place like any other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from explorer.config import RunConfig
from explorer.experiments.plans import Plan, sweep_plan
from explorer.experiments.suggestions import batches, seqs
from explorer.gui.cells import number
from explorer.gui.controls import divided
from explorer.gui.heat_map import Cell, HeatMap, largest_words
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import gib, milliseconds, si_number
from explorer.gui.result_table import ResultTable
from explorer.gui.series_page import SeriesPage, said
from explorer.results import export
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sweep import SeqPoints, outcome_of

GIB = 2**30


class SweepPage(SeriesPage):
    def __init__(self) -> None:
        table = ResultTable(
            name="sweep_table",
            title=later("The sweep's points"),
            words=2,
            empty=later("Press Measure: each batch and length becomes a row, whether it fits or not."),
        )
        super().__init__("sweep", later("Sweep"), table, checks=False)
        self.throughput = HeatMap(
            name="sweep_speed_map",
            title=later("Throughput by batch and length"),
            unit=later("tokens/s, by batch"),
            words=later(
                "A field a batch and length: tokens/s. What does not fit is hatched; the largest batch is found."
            ),
        )
        self.memory = HeatMap(
            name="sweep_memory_map",
            title=later("Memory by batch and length"),
            unit=later("GiB in a step, by batch"),
            words=later("What a step needs at each batch and length."),
        )
        self.batches = self._edit("batches", later("Batch sizes behind commas, such as 1,2,4,8"))
        self.seqs = self._edit("seqs", later("Lengths in tokens behind commas, such as 256,1024"))
        maps = QWidget()
        column = QVBoxLayout(maps)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.throughput, 1)
        column.addWidget(self.memory, 1)
        content = divided(Qt.Orientation.Vertical, (maps, 3), (self.table, 1))
        self._lay_out([(later("Batches"), self.batches), (later("Lengths"), self.seqs)], content)

    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        self.batches.setPlaceholderText(",".join(map(str, batches(device))))
        self.seqs.setPlaceholderText(",".join(map(str, seqs(config))))

    def plan(self, config: RunConfig, here: Environment) -> Plan:
        device = here.device(config.device)
        return sweep_plan(config, device, said(self.batches), said(self.seqs))

    def reword(self) -> None:
        lines: Sequence[SeqPoints] = self._found
        rows = self.rows
        places = {(int(row["seq"] or 0), int(row["batch"] or 0)): row for row in rows}
        columns = sorted({batch for line in lines for batch in _columns(line)})
        largest = {line.seq: largest_words(line.largest, line.too_large, exact=line.exact) for line in lines}
        for heat_map, column, words in (
            (self.throughput, "tokens_per_s", si_number),
            (self.memory, "peak_allocated_bytes", _gibibytes),
        ):
            cells = {key: _cell(row, column, words) for key, row in places.items() if key[1] in columns}
            heat_map.show_cells(cells, columns, largest)
        self.table.show_rows(
            [
                tr("Tokens a sequence"),
                tr("Batch"),
                tr("Outcome"),
                tr("ms/step"),
                tr("tokens/s"),
                tr("Peak"),
                tr("Held"),
            ],
            [_line(row) for row in rows],
            [_tip(row) for row in rows],
        )

    def apply_theme(self, dark: bool) -> None:
        self.throughput.apply_theme(dark)
        self.memory.apply_theme(dark)


def _columns(line: SeqPoints) -> set[int]:
    """Batches with columns of their own: those that were timed or failed, and the two ends of the search."""
    ends = {batch for batch in (line.largest, line.too_large) if batch is not None}
    own = ("measured", "failed", "stopped")
    return ends | {batch for batch, point in line.points.items() if outcome_of(point) in own}


def _cell(row: Mapping[str, export.Cell], column: str, words: Any) -> Cell:
    value = number(row[column])
    if math.isfinite(value):
        return Cell(words=words(value), value=value)
    full = row["outcome"] == "out of memory"
    return Cell(words=tr("OOM") if full else from_below(str(row["outcome"])), full=full)


def _tip(row: Mapping[str, export.Cell]) -> str:
    if row["outcome"] == "fits":
        return tr("Seen to fit, not timed: a step of the search, or the budget ended while it warmed up.")
    return from_below(str(row["problem"] or ""))


def _gibibytes(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f}" if size_bytes < 100 * GIB else f"{size_bytes / GIB:.0f}"


def _line(row: Mapping[str, export.Cell]) -> list[str]:
    return [
        str(row["seq"]),
        str(row["batch"]),
        from_below(str(row["outcome"])),
        milliseconds(number(row["step_ms_median"])),
        si_number(number(row["tokens_per_s"])),
        gib(number(row["peak_allocated_bytes"])),
        gib(number(row["reserved_bytes"])),
    ]
