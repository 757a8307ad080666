"""The four panes of the plots panel: each a plot under a header that says its figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, assert_never

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QActionGroup, QColor, QFontMetrics
from PySide6.QtWidgets import QMenu, QToolButton, QVBoxLayout, QWidget

from explorer.config import Workload
from explorer.gui.axes import LogAxis, PlainAxis, SiAxis
from explorer.gui.curve import Curve
from explorer.gui.envelope import Floats
from explorer.gui.language import from_below, later, tr
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import NOTHING, blend, gib, mfu_words, milliseconds, run_colour, run_style, si_number, theme
from explorer.gui.readout import Caption, Key, Legend, Readout, Readouts
from explorer.gui.run_curves import Band, Figures, RunCurves
from explorer.gui.wording import keep
from explorer.results import flops
from explorer.results.environment import DeviceInfo
from explorer.results.memory import bands_problem
from explorer.results.sample import Segment

WAITING_WORDS = later("Waiting for the first step.")


PER_UNIT: Mapping[Literal["step", "token"], str] = MappingProxyType(
    {"step": later("ms/step"), "token": later("ms/token")}
)
BAND_WORDS: Mapping[Band, str] = MappingProxyType(
    {"others": later("others"), "context": later("context"), "driver": later("driver")}
)


class Pane(QWidget):
    """A plot and its header: caption, readouts and, where given, a widget that takes the rest of the row."""

    idle_words: str
    """What the empty plot teaches before the first run."""

    def __init__(self, caption: str, plot: LivePlot, readouts: tuple[Readout, ...], *side: QWidget) -> None:
        super().__init__()
        self.plot = plot
        self._readouts = readouts
        self._caption = Caption(caption)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(Readouts(readouts, caption=self._caption, side=side))
        column.addWidget(plot, 1)
        self.teach()

    def teach(self) -> None:
        """Say what the empty plot will show."""
        self.plot.show_words(self.idle_words)

    def begin(self, run_id: int, workload: Workload) -> None:
        """Clear the pane for a run."""
        self.plot.clear_curves()
        self.plot.show_words(WAITING_WORDS)

    @abstractmethod
    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        """Draw the run from ``low_s`` to ``high_s``; it has at least one sample."""

    @abstractmethod
    def told(self, curves: RunCurves, row: int) -> str:
        """What is shown of the step in ``row``, with its unit."""

    @abstractmethod
    def show_figures(self, figures: Figures) -> None: ...

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        """Put on the colours of a look, and those of the run where there is one."""
        look = theme(dark)
        self.plot.apply_theme(look)
        self._caption.apply_theme(look)
        for readout in self._readouts:
            readout.apply_theme(look)


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
        self.plot.fit(0, 1.15 * _highest(medians[shown]))
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


class MemoryPane(Pane):
    """Memory of the device in bands, one on the other; on the CPU the worker's resident memory."""

    idle_words = later(
        "What a step needs at its peak, what the allocator holds, and what is in use on the device, by whom."
    )
    # Each is filled down to zero and hides the lower part of those before. How much of the run's colour it has; None:
    # grey, since it is not the run's.
    _SHARES: Mapping[Band, float | None] = MappingProxyType(
        {"unsplit": 0.14, "driver": None, "others": None, "context": 0.2, "cached": 0.36, "allocated": 0.6}
    )
    _USED = later("Memory in use on the device, by whomever; the driver's reserve is not counted")
    _GREYS: Mapping[Band, float] = MappingProxyType({"driver": 0.55, "others": 0.28})

    def __init__(self) -> None:
        widest = "888.8 GiB"
        self.peak_readout = Readout(
            later("Largest sum of live tensors within a step"), later("in a step"), widest=widest
        )
        self.held_readout = Readout(
            later("What the allocator holds; the band is its cache, above the step's peak"),
            later("held"),
            widest=widest,
        )
        self.used_readout = Readout(self._USED, later("in use"), widest=widest)
        axis = PlainAxis("left", later("GiB"))
        plot = LivePlot(name="memory_plot", title=later("Memory"), axis=axis, from_zero=True, words=False)
        self._legend = Legend()
        keep(
            self._legend.setToolTip,
            "others: what other processes hold, by NVML. context: CUDA's context, code and libraries' workspaces, "
            "NVML's figure for the worker less what its allocator holds. driver: the driver's own reserve, which no "
            "process can use.",
        )
        super().__init__(later("Memory"), plot, (self.peak_readout, self.held_readout, self.used_readout), self._legend)
        self._of: Mapping[Band, Readout] = {
            "allocated": self.peak_readout,
            "cached": self.held_readout,
            "unsplit": self.used_readout,
        }
        self._bands = {band: plot.add_curve() for band in self._SHARES}
        self._device: DeviceInfo | None = None
        self._on_cpu = False
        self._driver_bytes = 0
        self._look = theme(dark=False)
        self._fills: dict[Band, QColor] = {}
        self._figures = Figures()

    def legend_words(self) -> list[str]:
        """The bands beyond the allocator's, with their sizes."""
        return self._legend.words()

    def set_device(self, device: DeviceInfo | None) -> None:
        self._device = device

    def set_cpu(self, on_cpu: bool) -> None:
        """Whether the run is on the CPU, where there is no allocator to ask."""
        self._on_cpu = on_cpu
        self.peak_readout.setVisible(not on_cpu)
        self.held_readout.setVisible(not on_cpu)

    def begin(self, run_id: int, workload: Workload) -> None:
        super().begin(run_id, workload)
        for readout in self._readouts:
            readout.show_number(NOTHING)
        self._driver_bytes = 0
        self._show_apart(Figures())

    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        highest_gib = 0.0
        for band, curve in self._bands.items():
            x, y = curves.memory_gib(band, low_s, high_s, self.plot.bins())
            _set_measured(curve, *_corners(x, y))
            highest_gib = float(np.fmax(highest_gib, _highest(y)))
        # torch leaves the driver's reserve out of the total.
        limit_bytes = self._device.total_memory_bytes + self._driver_bytes if self._device is not None else 0
        limit_gib = limit_bytes / 2**30
        # A limit far above would press the bands flat; the header says it anyway.
        near = highest_gib > 0.4 * limit_gib > 0
        self.plot.show_limit(limit_gib if near else None)
        self.plot.fit(0, max(1.15 * highest_gib, 1.05 * limit_gib if near else 0.0))
        self.plot.show_words(None if highest_gib else later("Memory is not measured here."))

    def show_figures(self, figures: Figures) -> None:
        self.peak_readout.show_number(gib(figures.peak_allocated_bytes))
        self.held_readout.show_number(gib(figures.reserved_bytes))
        used = gib(figures.device_used_bytes)
        if self._device is None:
            self.used_readout.show_number(used, later("resident in the worker") if self._on_cpu else later("in use"))
        else:
            words = later("resident in the worker of {whole}") if self._on_cpu else later("in use of {whole}")
            self.used_readout.show_number(used, words, whole=gib(self._device.total_memory_bytes))
        self._show_apart(figures)

    def told(self, curves: RunCurves, row: int) -> str:
        peak = curves.value("peak_allocated_bytes", row)
        if peak >= 0:
            return f"{gib(peak)} {tr('in a step')}"
        where = tr("resident in the worker") if self._on_cpu else tr("in use")
        return f"{gib(curves.value('device_used_bytes', row))} {where}"

    def _show_apart(self, figures: Figures) -> None:
        """The bands beyond the allocator's, or why there are none."""
        self._figures = figures
        sizes: tuple[tuple[Band, int], ...] = (
            ("others", figures.other_processes_bytes),
            ("context", figures.context_bytes),
            ("driver", figures.driver_reserved_bytes),
        )
        keys = tuple(
            Key(words=f"{tr(BAND_WORDS[band])} {gib(size)}", colour=self._fills[band], width=8.0)
            for band, size in sizes
            if size >= 0 and band in self._fills
        )
        self._legend.show_keys(keys, self._look)
        told_apart = figures.other_processes_bytes >= 0 and figures.context_bytes >= 0
        self.used_readout.show_patch(None if told_apart else self._fills.get("unsplit"))
        why = None
        if self._device is not None and figures.device_used_bytes >= 0:
            why = bands_problem(self._device, told=figures.context_bytes >= 0)
        used = tr(self._USED)
        words = used if why is None else tr("{used}.\nNot in bands: {why}.", used=used, why=from_below(why))
        self.used_readout.setToolTip(words)
        self._driver_bytes = max(self._driver_bytes, figures.driver_reserved_bytes)

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        super().dress(run_id, dark=dark, frozen=frozen)
        if run_id is None:
            return
        self._look = look = theme(dark)
        ground = QColor(look.background)
        for band, share in self._SHARES.items():
            colour = run_colour(run_id, dark) if share is not None else QColor(look.muted)
            share = self._GREYS[band] if share is None else share
            fill = blend(colour, ground, share)
            self.plot.dress(self._bands[band], blend(colour, ground, min(1.0, share + 0.35)), fill=fill)
            self._fills[band] = fill
            if band in self._of:
                self._of[band].show_patch(fill)
        self._show_apart(self._figures)


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
        _set_measured(self._curve, x, y)
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
        self.plot.fit(0, 1.35 * (typical_ms if np.isfinite(typical_ms) else _highest(y)))
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


def _highest(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else float("nan")


def _corners(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The points without those inside a level stretch: memory seldom moves, and a filled curve is dear."""
    if len(y) < 3:
        return x, y
    moves = y[1:] != y[:-1]
    kept = np.concatenate(([True], moves[:-1] | moves[1:], [True]))
    return x[kept], y[kept]


def _set_measured(curve: Curve, x: Floats, y: Floats) -> None:
    """Draw the points; nothing where none of them was measured."""
    measured = bool(np.isfinite(y).any())
    curve.setData(x if measured else [], y if measured else [])
