"""The rows of the table of runs: one a segment, each built from the log and kept until the log has more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import QModelIndex, QObject, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap

from explorer.config import Workload
from explorer.gui.column_model import SORT_ROLE, Column, ColumnModel, Index
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import (
    A_STYLE,
    B_STYLE,
    NOTHING,
    PUBLISHED_MFU,
    a_colour,
    b_colour,
    gib,
    mfu_words,
    milliseconds,
    run_colour,
    run_style,
    si_number,
)
from explorer.gui.pins import LETTERS
from explorer.optimizations.registry import baseline_levels, levels_of
from explorer.results import flops
from explorer.results.export import device_name
from explorer.results.log import RunLog, RunRecord, SegmentRecord
from explorer.results.machine import machine
from explorer.results.statistics import SegmentSummary

KEY_ROLE = SORT_ROLE + 1
"""(run id, segment index) of a row."""


WORKLOADS: Mapping[Workload, str] = MappingProxyType({"train": later("train"), "generate": later("generate")})
STATES: Mapping[str, str] = MappingProxyType(
    {
        "running": later("running"),
        "changed": later("changed"),
        "completed": later("completed"),
        "stopped": later("stopped"),
        "failed": later("failed"),
        "incomplete": later("incomplete"),
    }
)
NOT_FINITE = later("not finite")

COLUMNS = (
    Column(
        title=later("Run"),
        widest="—— 888.8",
        tooltip=later("Run and segment: a setting changed live begins the next segment"),
    ),
    Column(title=later("What differs"), widest="+ precision bf16 + attention sdpa + …", number=False),
    Column(title=later("Workload"), widest="generate", number=False),
    Column(title=later("Model"), widest="gpt2-medium", number=False),
    Column(title=later("B × T"), widest="1024 × 1024", tooltip=later("Sequences a step × tokens a sequence")),
    Column(
        title=later("Steps"), widest="888,888", tooltip=later("Training steps, or tokens of each generated sequence")
    ),
    Column(title=later("tokens/s"), widest="~ 888.8k", tooltip=later("Median over the steps after warm-up")),
    Column(
        title=later("p5 – p95"), widest="888.8k – 888.8k", tooltip=later("Of tokens/s: nine steps in ten lie between")
    ),
    Column(title=later("ms/step"), widest="~ 8,888", tooltip=later("Median time of a step, or of a token")),
    Column(
        title=later("MFU"),
        widest="0.888 TFLOP/s",
        tooltip=later("Share of the matrix product that this device was seen to do, or TFLOP/s"),
    ),
    Column(title=later("Peak"), widest="888.8 MiB", tooltip=later("Largest sum of live tensors within a step")),
    Column(
        title=later("Held"),
        widest="888.8 MiB",
        tooltip=later("Most that the allocator held (CPU: the worker's resident memory)"),
    ),
    Column(title=later("Loss"), widest="88.888 → 88.888", tooltip=later("Of the segment's first and last step")),
    Column(title=later("State"), widest="completed", number=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    run_id: int
    segment: int
    cells: tuple[str, ...]
    keys: tuple[Any, ...]
    """What each cell sorts by."""
    tooltip: str


def build_row(record: RunRecord, part: SegmentRecord, *, arm: int | None = None) -> Row:
    """The row of one segment as the log has it now; ``arm`` is 0 or 1 where its run is A or B of a comparison."""
    index, config = part.segment.index, part.config
    summary = record.summary(index)
    tokens = config.seq if config.workload == "train" else config.max_new_tokens
    state = record.outcome if part is record.segments[-1] else "changed"
    device = device_name(record.environment, config)
    done = flops.utilization(part.segment, summary.tokens_per_s_median, device)
    # Without an allocator to ask, on the CPU, what is held is the process's resident memory.
    held_bytes = summary.reserved_bytes if summary.reserved_bytes >= 0 else summary.device_used_bytes
    mark = "" if summary.settled or not summary.n else "~ "
    shown: tuple[tuple[str, Any], ...] = (
        (f"{record.run_id}.{index + 1}", record.run_id * 1_000_000 + index),
        (("" if arm is None else f"{LETTERS[arm]}: ") + from_below(record.label(index, baseline_levels())), None),
        (tr(WORKLOADS[config.workload]), None),
        (config.model, None),
        (f"{config.batch} × {tokens}", config.batch * tokens),
        (f"{summary.steps:,}", summary.steps),
        (_marked(mark, si_number(summary.tokens_per_s_median)), summary.tokens_per_s_median),
        (_range(summary), summary.tokens_per_s_p5),
        (_marked(mark, milliseconds(summary.step_ms_median).removesuffix(" ms")), summary.step_ms_median),
        (_mfu(done), done.tflop_per_s),
        (gib(summary.peak_allocated_bytes), summary.peak_allocated_bytes),
        (gib(held_bytes), held_bytes),
        (_loss(summary), summary.loss_last),
        (tr(STATES[state]), None),
    )
    return Row(
        run_id=record.run_id,
        segment=index,
        cells=tuple(cell for cell, _ in shown),
        # Qt cannot order NaN: what was not measured comes first.
        keys=tuple(cell if key is None else -1.0 if math.isnan(key) else key for cell, key in shown),
        tooltip=_tooltip(record, part, summary),
    )


def _marked(mark: str, number: str) -> str:
    return number if number == NOTHING else mark + number


def _range(summary: SegmentSummary) -> str:
    if not summary.n:
        return NOTHING
    return f"{si_number(summary.tokens_per_s_p5)} – {si_number(summary.tokens_per_s_p95)}"


def _mfu(done: flops.Utilization) -> str:
    number, unit = mfu_words(done)
    if number == NOTHING or unit == "MFU":
        return number
    return tr("{share} of peak", share=number) if unit == PUBLISHED_MFU else f"{number} {unit}"


def _loss(summary: SegmentSummary) -> str:
    ends = [f"{v:.3f}" if math.isfinite(v) else NOT_FINITE for v in (summary.loss_first, summary.loss_last)]
    return NOTHING if ends == [NOT_FINITE] * 2 else " → ".join(tr(end) if end == NOT_FINITE else end for end in ends)


def _tooltip(record: RunRecord, part: SegmentRecord, summary: SegmentSummary) -> str:
    lines = []
    if part.segment.changes:
        lines.append(tr("Changed here: {changes}", changes=", ".join(part.segment.changes)))
    if record.problem:
        lines.append(from_below(record.problem))
    where = machine(record)
    if where is None:
        lines.append(tr("Started {time}", time=record.started_at))
    else:
        lines.append(tr("Started {time} on {machine}", time=record.started_at, machine=where))
    if summary.n:
        lines.append(
            tr(
                "Statistics over {steps:,} steps; left out: {warmup:,} of compile and warm-up.",
                steps=summary.n,
                warmup=summary.warmup_steps,
            )
        )
    if summary.n and not summary.settled:
        lines.append(tr("~ Step times had not settled: take these numbers with care."))
    if part.segment.flop_per_token is not None:
        words = flops.in_words(part.segment, device_name(record.environment, part.config))
        lines.append(tr("MFU: {how}.", how=from_below(words)))
    settings = part.config.to_dict()
    settings["levels"] = " ".join(f"{name}={level}" for name, level in levels_of(part.config).items())
    lines += [f"{name}: {value}" for name, value in settings.items()]
    return "\n".join(lines)


class RunsModel(ColumnModel):
    """The segments of every run in ``log``, in the order in which they began."""

    columns = COLUMNS

    def __init__(self, log: RunLog, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._log = log
        self._rows: list[Row] = []
        self._seen: dict[tuple[int, int], tuple[int, str, int]] = {}
        self._swatches: dict[int, QPixmap] = {}
        self._arms: dict[int, int] = {}
        self._dark = False

    def mark_arms(self, a: int, b: int) -> None:
        """Show the runs with these ids as A and B of a comparison: by letter, colour and line."""
        self._arms |= {a: 0, b: 1}

    def refresh(self) -> None:
        """Take in what the log has gained; rows of segments without news are left alone."""
        at = {(row.run_id, row.segment): i for i, row in enumerate(self._rows)}
        for record in self._log.runs:
            for part in record.segments:
                key = (record.run_id, part.segment.index)
                rows = record.columns.rows_of(part.segment.index)
                news = (record.columns.dropped + rows.stop, record.outcome, len(record.segments))
                if key in at and self._seen.get(key) == news:
                    continue
                self._seen[key] = news
                row = build_row(record, part, arm=self._arms.get(record.run_id))
                if key in at:
                    self._rows[at[key]] = row
                    self.dataChanged.emit(self.index(at[key], 0), self.index(at[key], len(COLUMNS) - 1))
                else:
                    self.beginInsertRows(QModelIndex(), len(self._rows), len(self._rows))
                    self._rows.append(row)
                    self.endInsertRows()

    def reword(self) -> None:
        """Build every row and the header again, in the language of the moment."""
        self.beginResetModel()
        self._rows, self._seen = [], {}
        self.endResetModel()
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)
        self.refresh()

    def set_dark(self, dark: bool) -> None:
        self._dark = dark
        self._swatches.clear()
        if self._rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self._rows) - 1, 0))

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self._rows[index.row()], index.column()
        if role == SORT_ROLE:
            return row.keys[column]
        if role == KEY_ROLE:
            return row.run_id, row.segment
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.cells[column]
            case Qt.ItemDataRole.ToolTipRole:
                return row.tooltip
            case Qt.ItemDataRole.TextAlignmentRole:
                return self.alignment(column)
            case Qt.ItemDataRole.DecorationRole if column == 0:
                return self._swatch(row.run_id)
        return None

    def _swatch(self, run_id: int) -> QPixmap:
        if run_id not in self._swatches:
            pixmap = QPixmap(20, 12)
            pixmap.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixmap)
            painter.setPen(QPen(*self.line(run_id)))
            painter.drawLine(0, 6, 20, 6)
            painter.end()
            self._swatches[run_id] = pixmap
        return self._swatches[run_id]

    def line(self, run_id: int) -> tuple[QColor, float, Qt.PenStyle]:
        """Colour, width and dash of a run, as everywhere else."""
        match self._arms.get(run_id):
            case 0:
                return a_colour(self._dark), 3, A_STYLE
            case 1:
                return b_colour(self._dark), 3, B_STYLE
            case _:
                return run_colour(run_id, self._dark), 3, run_style(run_id)
