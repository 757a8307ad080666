"""Tokens a second and the share of the device that they use."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from explorer.config import Workload
from explorer.gui.axes import SiAxis
from explorer.gui.language import from_below, later, tr
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import NOTHING, blend, mfu_words, milliseconds, run_colour, run_style, si_number, theme
from explorer.gui.pane import PER_UNIT, Pane, highest
from explorer.gui.readout import Key, Legend, Readout
from explorer.gui.run_curves import Figures, RunCurves
from explorer.results import flops
from explorer.results.sample import Segment


class ThroughputPane(Pane):
    """Tokens/s: every step faint, the median of short windows over it."""

    idle_words = later(
        "Press Start (F5): tokens a second are drawn here.\n"
        "Then flip one toggle: the curve shows what it does, from the next step on."
    )

    def __init__(self, legend: Legend, *side: QWidget) -> None:
        self.rate_readout = Readout(later("Median of the last second"), later("tokens/s"), widest="888.8k", scale=2.0)
        self.step_readout = Readout(later("Median of the last second"), later("ms/step"), widest="8,888", scale=1.4)
        self.mfu_readout = Readout(later("Model FLOP utilization"), later("MFU"), widest="100.0%", scale=1.4)
        axis = SiAxis("left", later("tokens/s"))
        plot = LivePlot(name="throughput_plot", title=later("Throughput"), axis=axis, from_zero=True, words=True)
        super().__init__(later("Throughput"), plot, (self.rate_readout, self.step_readout, self.mfu_readout), *side)
        self._legend = legend
        self._segment: Segment | None = None
        self._device_name: str | None = None
        self.mfu_readout.hide()
        self._unit: Literal["step", "token"] = "step"
        # The first curve of the plot is the main one; it lies on top.
        self._median = plot.add_curve(above=True)
        self._each = plot.add_curve()

    def legend_words(self) -> list[str]:
        """What the legend says."""
        return self._legend.words()

    def begin(self, run_id: int, workload: Workload) -> None:
        super().begin(run_id, workload)
        self._unit = "token" if workload == "generate" else "step"
        self.rate_readout.show_number(NOTHING)
        self.step_readout.show_number(NOTHING, PER_UNIT[self._unit])
        self._segment = None
        self.mfu_readout.hide()

    def set_segment(self, segment: Segment, device_name: str | None) -> None:
        """What the figures to come are of: a segment carries how much arithmetic a token is."""
        self._segment, self._device_name = segment, device_name
        self.mfu_readout.setVisible(segment.flop_per_token is not None)
        self._explain_mfu()

    def _explain_mfu(self) -> None:
        if self._segment is not None:
            self.mfu_readout.setToolTip(from_below(flops.in_words(self._segment, self._device_name)))

    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        self._each.setData(*curves.rate(low_s, high_s, self.plot.bins()))
        times_s, medians = curves.median_rate()
        shown = slice(max(int(np.searchsorted(times_s, low_s)) - 1, 0), int(np.searchsorted(times_s, high_s)) + 1)
        self._median.setData(times_s[shown], medians[shown])
        self.plot.fit(0, 1.15 * highest(medians[shown]))
        self.plot.show_words(None)

    def show_figures(self, figures: Figures) -> None:
        self.rate_readout.show_number(si_number(figures.tokens_per_s))
        self.step_readout.show_number(milliseconds(figures.step_ms).removesuffix(" ms"))
        if self._segment is not None:
            done = flops.utilization(self._segment, figures.tokens_per_s, self._device_name)
            self.mfu_readout.show_number(*mfu_words(done))

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        super().dress(run_id, dark=dark, frozen=frozen)
        self._explain_mfu()
        if run_id is None:
            return
        look = theme(dark)
        colour, style = run_colour(run_id, dark), run_style(run_id)
        faint = blend(colour, QColor(look.background), 0.45)
        self.plot.dress(self._each, faint)
        self.plot.dress(self._median, colour, width=2.0, style=style)
        name = tr("run {run}, frozen", run=run_id) if frozen else tr("run {run}", run=run_id)
        each = tr("each token") if self._unit == "token" else tr("each step")
        self._legend.show_keys(
            (
                Key(words=tr("{run}: median of 0.25 s", run=name), colour=colour, width=2.0, style=style),
                Key(words=each, colour=faint),
            ),
            look,
        )

    def told(self, curves: RunCurves, row: int) -> str:
        rate = curves.rate_at(row)
        return f"{si_number(rate) if np.isfinite(rate) else NOTHING} {tr('tokens/s')}"
