"""Time of the steps."""

from __future__ import annotations

import numpy as np

from explorer.config import Workload
from explorer.gui.axes import PlainAxis
from explorer.gui.language import later, tr
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import NOTHING, milliseconds, run_colour
from explorer.gui.pane import PER_UNIT, Pane, highest
from explorer.gui.readout import Readout
from explorer.gui.run_curves import Figures, RunCurves
from explorer.gui.wording import keep


class StepTimePane(Pane):
    """Time of every step."""

    idle_words = later("Time of each step, its median and its 95th percentile.")

    def __init__(self) -> None:
        self.p50_readout = Readout(later("Median of the last 1000 steps"), "", lead="p50", widest="8,888 ms")
        self.p95_readout = Readout(later("95th percentile of the last 1000 steps"), "", lead="p95", widest="8,888 ms")
        self._axis = PlainAxis("left", later("ms/step"))
        plot = LivePlot(name="step_time_plot", title=later("Step time"), axis=self._axis, from_zero=True, words=False)
        super().__init__(later("Step time"), plot, (self.p50_readout, self.p95_readout))
        self._generates = False
        self._curve = plot.add_curve()

    def begin(self, run_id: int, workload: Workload) -> None:
        super().begin(run_id, workload)
        self._generates = workload == "generate"
        keep(self._axis.setLabel, PER_UNIT["token" if self._generates else "step"])
        self.p50_readout.show_number(NOTHING)
        self.p95_readout.show_number(NOTHING)

    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        x, y = curves.plain("step_ms", low_s, high_s, self.plot.bins())
        self._curve.setData(x, y)
        # Compilation and single stalls may leave the picture: they would press everything else flat.
        typical_ms = curves.typical_step_ms(low_s, high_s)
        self.plot.fit(0, 1.35 * (typical_ms if np.isfinite(typical_ms) else highest(y)))
        self.plot.show_words(None)

    def told(self, curves: RunCurves, row: int) -> str:
        number, took = f"{curves.value('step', row):,.0f}", milliseconds(curves.value("step_ms", row))
        return (
            tr("token {number}: {took}", number=number, took=took)
            if self._generates
            else tr("step {number}: {took}", number=number, took=took)
        )

    def show_figures(self, figures: Figures) -> None:
        self.p50_readout.show_number(milliseconds(figures.step_ms_p50))
        self.p95_readout.show_number(milliseconds(figures.step_ms_p95))

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        super().dress(run_id, dark=dark, frozen=frozen)
        self.plot.dress(self._curve, run_colour(run_id or 0, dark))
