"""The loss, and the other curves that share its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, assert_never

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QActionGroup, QFontMetrics
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from explorer.config import Workload
from explorer.gui.axes import LogAxis
from explorer.gui.language import later, tr
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import NOTHING, run_colour
from explorer.gui.pane import Pane, set_measured
from explorer.gui.readout import Readout
from explorer.gui.run_curves import Figures, RunCurves
from explorer.gui.wording import keep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurve:
    """One of the curves that the loss shares its place with. Words are English literals."""

    title: str
    axis: str
    meaning: str
    """Of the readout."""
    none: str
    """What the plot says where no step has such a number."""
    log: bool = True
    """Whether its axis is a logarithmic one, unless the person wants it otherwise."""
    training: bool = True
    """Whether it is there in training only."""


CurveName = Literal["loss", "grad_norm", "loss_scale", "power_w", "sm_clock_mhz"]
STEP_CURVES: Mapping[CurveName, StepCurve] = MappingProxyType(
    {
        "loss": StepCurve(
            title=later("Loss"),
            axis=later("nats"),
            meaning=later("Loss of the last step, in nats a token"),
            none=later("No loss in generation."),
            log=False,
        ),
        "grad_norm": StepCurve(
            title=later("Gradient norm"),
            axis=later("norm"),
            meaning=later("Norm of the last step's gradients, before clipping and unscaled"),
            none=later("No gradients in generation."),
        ),
        "loss_scale": StepCurve(
            title=later("Loss scale"),
            axis=later("scale"),
            meaning=later("What fp16 multiplied the last step's loss by, so that small gradients do not vanish"),
            none=later("No loss scale: only fp16 has one."),
        ),
        "power_w": StepCurve(
            title=later("Power"),
            axis="W",
            meaning=later("Power drawn by the device during the last step"),
            none=later("This device does not say what power it draws."),
            log=False,
            training=False,
        ),
        "sm_clock_mhz": StepCurve(
            title=later("Clock"),
            axis="MHz",
            meaning=later("Clock of the device's multiprocessors during the last step"),
            none=later("This device does not say its clock."),
            log=False,
            training=False,
        ),
    }
)
"""By their columns. A gradient norm and a scale run over many powers of ten: their axis is a logarithmic one at first.
"""


class LossPane(Pane):
    """Loss of every training step; or, where the person asks for it, the norm of its gradients, fp16's loss scale, or
    the power and the clock of the device. The axis is a logarithmic one where the person asks for that.
    """

    chosen = Signal()
    """Another curve was asked for."""
    idle_words = later("Loss of each training step: an optimization should not change where it goes.")

    def __init__(self) -> None:
        loss = STEP_CURVES["loss"]
        self.loss_readout = Readout(loss.meaning, "", widest="8.88e+88")
        self._axis = LogAxis("left", loss.axis)
        self._axis.set_log(False)
        plot = LivePlot(name="loss_plot", title=loss.title, axis=self._axis, from_zero=False, words=False)
        self._button = QToolButton()
        self._button.setObjectName("loss_curve_button")
        self._button.setAutoRaise(True)
        self._button.setFixedHeight(QFontMetrics(self._button.font()).height() + 2)  # no higher than a readout
        self._button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        keep(self._button.setText, "Curve")
        tip = later("Draw the loss, the gradient norm, fp16's loss scale, or the device's power or clock here")
        keep(self._button.setToolTip, tip)
        keep(self._button.setAccessibleName, tip)
        menu = QMenu(self._button)
        group = QActionGroup(menu)
        for name, curve in STEP_CURVES.items():
            action = QAction(menu)
            keep(action.setText, curve.title)
            action.setObjectName(f"curve_{name}_action")
            action.setCheckable(True)
            action.setChecked(name == "loss")
            action.triggered.connect(lambda _=False, name=name: self.show_curve(name))
            group.addAction(action)
            menu.addAction(action)
        menu.addSeparator()
        self._log = QAction(menu)
        keep(self._log.setText, "Logarithmic axis")
        self._log.setObjectName("curve_log_action")
        self._log.setCheckable(True)
        self._log.triggered.connect(self._set_log)
        menu.addAction(self._log)
        self._button.setMenu(menu)
        super().__init__(loss.title, plot, (self.loss_readout,), QWidget(), self._button)
        self._curve = plot.add_curve()
        self._shown: CurveName = "loss"
        self._generates = False

    def show_curve(self, name: CurveName) -> None:
        """Draw this column from now on."""
        self._shown, curve = name, STEP_CURVES[name]
        keep(self._caption.show_text, curve.title)
        keep(self.plot.setAccessibleName, curve.title)
        self.loss_readout.show_meaning(curve.meaning)
        keep(self._axis.setLabel, curve.axis)
        if self._misses():
            self.plot.clear_curves()
            self.plot.show_words(curve.none)
        self._log.setChecked(curve.log)
        self._set_log(curve.log)

    def _set_log(self, log: bool) -> None:
        self._axis.set_log(log)
        self.plot.let_go()
        self.chosen.emit()

    def _misses(self) -> bool:
        """Whether the run cannot have what is shown."""
        return self._generates and STEP_CURVES[self._shown].training

    def begin(self, run_id: int, workload: Workload) -> None:
        super().begin(run_id, workload)
        self._generates = workload == "generate"
        self.loss_readout.show_number(NOTHING)
        if self._misses():
            self.plot.show_words(STEP_CURVES[self._shown].none)

    def told(self, curves: RunCurves, row: int) -> str:
        number = _step_number(self._shown, curves.value(self._shown, row))
        return f"{number} {tr(STEP_CURVES[self._shown].axis)}"

    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        if self._misses():
            return
        x, y = curves.plain(self._shown, low_s, high_s, self.plot.bins())
        if self._log.isChecked():
            y = np.log10(y, out=np.full(len(y), np.nan), where=np.isfinite(y) & (y > 0))
        set_measured(self._curve, x, y)
        finite = y[np.isfinite(y)]
        if len(finite):
            self.plot.fit(float(finite.min()), float(finite.max()))
        if len(finite) or self._shown not in ("loss", "grad_norm"):
            self.plot.show_words(None if len(finite) else STEP_CURVES[self._shown].none)

    def show_figures(self, figures: Figures) -> None:
        curve = STEP_CURVES[self._shown]
        number = _step_number(self._shown, getattr(figures, self._shown))
        self.loss_readout.show_number(number, "" if curve.training else curve.axis)

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        super().dress(run_id, dark=dark, frozen=frozen)
        self.plot.dress(self._curve, run_colour(run_id or 0, dark))


def _step_number(name: CurveName, value: float) -> str:
    """A value of one of the ``STEP_CURVES`` as it is read out; a dash where there is none."""
    match name:
        case "loss":
            return f"{value:.3f}" if np.isfinite(value) else NOTHING
        case "grad_norm":
            return NOTHING if np.isnan(value) else f"{value:.3g}"
        case "loss_scale" | "power_w" | "sm_clock_mhz":
            return f"{value:,.0f}" if np.isfinite(value) else NOTHING
        case _:
            assert_never(name)
