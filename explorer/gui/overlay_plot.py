"""Several runs as lines in one plot, over tokens, steps or time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from explorer.gui.axes import SiAxis, round_up
from explorer.gui.curve import Curve
from explorer.gui.language import later
from explorer.gui.still_plot import StillPlot, pen
from explorer.gui.wording import keep
from explorer.results.log import RunRecord
from explorer.results.overlay import Over, What, line

LEFT_AXIS_PX = 60
WHATS: Mapping[What, tuple[str, str]] = {
    "rate": (later("Throughput"), later("tokens/s")),
    "loss": (later("Loss"), later("nats")),
    "step_ms": (later("Step time"), "ms"),
    "memory_gib": (later("Memory"), "GiB"),
}
"""Each with its name and its unit."""
OVERS: Mapping[Over, tuple[str, str]] = {
    "tokens": (later("over tokens"), later("tokens")),
    "step": (later("over steps"), later("steps")),
    "time_s": (later("over time"), later("seconds of the run")),
}
"""Each with its words and what stands at the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run and how it is drawn."""

    record: RunRecord
    colour: QColor
    style: Qt.PenStyle


class OverlayPlot(StillPlot):
    def __init__(self) -> None:
        self._shown: tuple[Sequence[RunLine], What, Over] = ((), "rate", "tokens")
        self.lines: list[Curve] = []
        self._known: dict[tuple[str, What, Over], tuple[int, tuple[np.ndarray, np.ndarray]]] = {}
        """Of each run its line, and of how many steps that is."""
        super().__init__(
            name="overlay_plot",
            title=later("Curves of the runs"),
            words=later("A line a run: each as its steps went, over tokens, steps or time."),
            left=lambda: SiAxis("left", None),
            bottom=lambda: SiAxis("bottom", None),
            left_px=LEFT_AXIS_PX,
            grid="xy",
        )

    def show_runs(self, runs: Sequence[RunLine], what: What, over: Over) -> None:
        """Draw ``runs``; those in which nothing of it was measured have no line."""
        self._shown = (runs, what, over)
        self._redraw()

    def _draw(self) -> None:
        runs, what, over = self._shown
        for curve in self.lines:
            self.removeItem(curve)
        self.lines = []
        left, bottom = self._axes
        keep(left.setLabel, WHATS[what][1])
        keep(bottom.setLabel, OVERS[over][1])
        drawn = [(run, *self._line(run.record, what, over)) for run in runs]
        for run, x, y in drawn:
            if len(x):
                curve = Curve()
                curve.setPen(pen(run.colour, 1.5, run.style))
                curve.setData(x, y)
                self.addItem(curve, ignoreBounds=True)
                self.lines.append(curve)
        self._show_empty(not self.lines)
        if self.lines:
            self._fit([x for _, x, _ in drawn if len(x)], [y[np.isfinite(y)] for _, x, y in drawn if len(x)], what)

    def _line(self, record: RunRecord, what: What, over: Over) -> tuple[np.ndarray, np.ndarray]:
        columns = record.columns
        steps = columns.dropped + len(columns)
        known = self._known.get((record.uid, what, over))
        if known is None or known[0] != steps:
            known = self._known[record.uid, what, over] = (steps, line(columns.columns(), what, over))
        return known[1]

    def _fit(self, x: list[np.ndarray], y: list[np.ndarray], what: What) -> None:
        # Compilation and single stalls may leave the picture: they would press everything else flat.
        highest = max(float(np.quantile(values, 0.97 if what == "step_ms" else 1.0)) for values in y)
        low = min(float(values.min()) for values in y) if what == "loss" else 0.0
        step = round_up((highest - low or 1.0) / 4)
        around = (math.floor(low / step) * step, math.ceil(highest / step) * step)
        ends = around if what == "loss" else (0.0, round_up(1.1 * highest))
        self._view.setRange(xRange=(0, max(float(values[-1]) for values in x) or 1.0), yRange=ends, padding=0)
