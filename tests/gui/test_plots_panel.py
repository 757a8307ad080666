"""The live curves on real widgets: what is drawn and read out is what the samples say."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from typing import get_args

import numpy as np
import pyqtgraph as pg
import pytest
from made_samples import GIB, begun, segment, steps
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QAction, QFontMetrics, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QToolButton
from pytestqt.qtbot import QtBot

from explorer.config import RunConfig
from explorer.gui.palette import LIGHT
from explorer.gui.plots_panel import PlotsPanel
from explorer.gui.run_curves import Band
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.log import RunLog
from explorer.results.ring import PHASE_CODES, as_columns
from explorer.results.sample import Sample

CARD = DeviceInfo(id="cuda:0", kind="cuda", name="Card", total_memory_bytes=16 * GIB)
TRAIN = RunConfig(device="cuda:0")
NAMES = ("throughput_plot", "memory_plot", "loss_plot", "step_time_plot")


class Panel:
    """A shown panel and the log that it draws from."""

    def __init__(self, qtbot: QtBot) -> None:
        self.log = RunLog()
        self.widget = PlotsPanel(self.log)
        qtbot.addWidget(self.widget)
        self.widget.resize(900, 700)
        self.widget.show()
        qtbot.waitExposed(self.widget)

    def begin(self, config: RunConfig = TRAIN, run_id: int = 1) -> None:
        begun(self.log, config, run_id)
        self.widget.begin_run(run_id, config)
        self.widget.add_segment(run_id, config, segment())

    def add(self, samples: list[Sample], run_id: int = 1) -> None:
        self.log.append(run_id, samples)
        self.widget.add_samples(run_id, samples)

    def plot(self, name: str) -> pg.PlotWidget:
        return self.widget.findChild(pg.PlotWidget, name)

    def curve(self, name: str, index: int = 0) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.plot(name).listDataItems()[index].getData()
        return (np.empty(0), np.empty(0)) if x is None else (x, y)

    def words(self, name: str) -> list[str]:
        return [label.text() for label in self.plot(name).findChildren(QLabel) if label.isVisible()]

    def range(self, name: str, side: int) -> list[float]:
        return self.plot(name).getPlotItem().viewRange()[side]

    def text(self, readout: str) -> str:
        panes = (self.widget.throughput, self.widget.memory, self.widget.loss, self.widget.step_time)
        return next(getattr(pane, readout).text() for pane in panes if hasattr(pane, readout))


@pytest.fixture
def panel(qtbot: QtBot) -> Panel:
    return Panel(qtbot)


def test_that_the_curves_end_in_the_last_samples_true_values(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([800.0, 300.0, 320.0, 400.0]))
    panel.widget.redraw()
    x, y = panel.curve("throughput_plot")
    assert x.tolist() == pytest.approx([0.8, 1.1, 1.42, 1.82])
    assert y.tolist() == pytest.approx([640.0, 1706.6667, 1600.0, 1280.0])
    assert panel.curve("step_time_plot")[1].tolist() == [800.0, 300.0, 320.0, 400.0]
    assert panel.curve("loss_plot")[1].tolist() == pytest.approx([5.0, 4.99, 4.98, 4.97])
    assert edges(panel) == {"unsplit": 5.0, "cached": 4.0, "allocated": 3.0}


def edges(panel: Panel) -> dict[str, float]:
    """By band that is drawn, its upper edge now, in GiB."""
    drawn = {band: panel.curve("memory_plot", index)[1] for index, band in enumerate(get_args(Band))}
    return {band: float(y[-1]) for band, y in drawn.items() if len(y)}


TOLD = {"context_bytes": GIB // 2, "other_processes_bytes": 3 * GIB, "driver_reserved_bytes": GIB // 4}


def test_that_memory_is_stacked_in_bands_under_the_devices_limit(panel: Panel) -> None:
    panel.widget.set_device(CARD)
    panel.begin()
    panel.add(steps([800.0, 300.0], **TOLD))
    for _ in range(2):
        panel.widget.redraw()
    assert edges(panel) == {"driver": 7.75, "others": 7.5, "context": 4.5, "cached": 4.0, "allocated": 3.0}
    limit = panel.widget.memory.plot._limit
    assert limit.isVisible()
    assert limit.value() == 16.25
    memory = panel.widget.memory
    assert memory.legend_words() == ["others 3.00 GiB", "context 512.0 MiB", "driver 256.0 MiB"]
    assert "Not in bands" not in memory.used_readout.toolTip()


def test_that_memory_which_is_not_told_apart_is_one_band_with_the_reason(panel: Panel) -> None:
    panel.widget.set_device(CARD)
    panel.begin()
    panel.add(steps([800.0, 300.0]))
    panel.widget.redraw()
    memory = panel.widget.memory
    assert edges(panel) == {"unsplit": 5.0, "cached": 4.0, "allocated": 3.0}
    assert memory.legend_words() == []
    assert "WSL2" in memory.used_readout.toolTip()


@pytest.mark.parametrize(
    ("ceiling", "name", "shown"),
    [
        (400.0, "NVIDIA H200", "50.0% MFU"),
        (None, "NVIDIA H200", "20.2% MFU, published peak"),
        (None, "Card", "200.0 TFLOP/s"),
    ],
)
def test_that_the_share_of_the_ceiling_is_read_out(panel: Panel, ceiling: float | None, name: str, shown: str) -> None:
    card = dataclasses.replace(CARD, name=name)
    panel.log.set_environment(Environment(devices=(card,), platform="", python="", explorer=""))
    begun(panel.log, TRAIN)
    panel.widget.begin_run(1, TRAIN)
    assert not panel.widget.throughput.mfu_readout.isVisible()
    asked = dataclasses.replace(segment(), flop_per_token=1e9, ceiling_tflop_per_s=ceiling)
    panel.widget.add_segment(1, TRAIN, asked)
    panel.add(steps([800.0, *[50.0] * 40], tokens=10_000))
    panel.widget.redraw()
    assert panel.widget.throughput.mfu_readout.isVisible()
    assert panel.text("mfu_readout") == shown
    assert "6 N + 12 L d T" in panel.widget.throughput.mfu_readout.toolTip()


def test_that_a_timer_draws_what_was_added(panel: Panel, qtbot: QtBot) -> None:
    panel.begin()
    panel.add(steps([800.0, 300.0]))
    qtbot.waitUntil(lambda: len(panel.curve("throughput_plot")[0]) == 2)


def test_that_the_readouts_are_medians_of_the_last_second(panel: Panel) -> None:
    panel.begin()
    # Slower and slower, so that any other window has another median.
    step_ms = [900.0, *(20.0 + 0.05 * i + (7 * i) % 11 for i in range(200))]
    samples = steps(step_ms)
    panel.add(samples)
    panel.widget.redraw()
    recent = [s for s in samples if s.time_s > samples[-1].time_s - 1.0]
    assert 20 < len(recent) < 100
    assert panel.text("step_readout") == f"{statistics.median(s.step_ms for s in recent):.1f} ms/step"
    rate = statistics.median(512 / s.step_ms * 1e3 for s in recent)
    assert panel.text("rate_readout") == f"{rate / 1e3:.1f}k tokens/s"
    timed = sorted(step_ms[1:])
    assert panel.text("p50_readout") == f"{np.quantile(timed, 0.5):.1f} ms "
    assert panel.text("p95_readout") == f"{np.quantile(timed, 0.95):.1f} ms "
    assert panel.text("loss_readout") == "3.000 "
    assert panel.text("peak_readout") == "3.00 GiB in a step"


def test_that_a_compilation_is_in_no_readout(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([900.0]))
    panel.widget.redraw()
    assert panel.text("rate_readout") == "– tokens/s"
    assert panel.text("p95_readout") == "– "


def test_that_a_marker_says_what_changed_where_the_segment_begins(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([800.0, 200.0]))
    config = TRAIN.with_level("precision", "bf16")
    change = segment(1, 2, "precision fp32 -> bf16", "batch 8 -> 16")
    panel.log.begin_segment(1, config, change)
    panel.widget.add_segment(1, config, change)
    panel.add(steps([500.0, 100.0], start_s=1.0, first_step=2, index=1))
    timeline = panel.widget.throughput.plot.annotations.timeline()
    assert [(m.time_s, m.text) for m in timeline.markers] == [(1.0, "precision fp32 → bf16, batch 8 → 16")]
    assert [(b.kind, b.start_s, b.end_s) for b in timeline.bands] == [("compile", 0.0, 0.8), ("compile", 1.0, 1.5)]
    assert timeline is panel.widget.loss.plot.annotations.timeline()


@pytest.mark.parametrize("step_ms", [40.0, 48.0, 60.0, 77.7])
def test_that_no_label_covers_the_curve(panel: Panel, step_ms: float) -> None:
    """Labels have an opaque ground: the curve must stay below them, wherever the axis ends."""
    panel.begin()
    panel.add(steps([step_ms] * 40, tokens=8192))
    start_s = 40 * step_ms / 1e3
    for index, change in enumerate(("precision fp32 -> bf16", "attention naive -> sdpa", "batch 8 -> 16"), start=1):
        changed = segment(index, 40 * index, change)
        panel.log.begin_segment(1, TRAIN, changed)
        panel.widget.add_segment(1, TRAIN, changed)
        panel.add(steps([step_ms] * 40, tokens=8192, start_s=start_s, first_step=40 * index, index=index))
        start_s += 40 * step_ms / 1e3
    panel.widget.redraw()
    plot = panel.plot("throughput_plot")
    view = plot.getPlotItem().getViewBox()
    curve_y = view.mapViewToScene(QPointF(1.0, 8192 / step_ms * 1e3)).y()
    top_y = view.mapViewToScene(QPointF(1.0, view.viewRange()[1][1])).y()
    rows_px = 3 * (QFontMetrics(QApplication.font()).height() + 2)
    assert curve_y > top_y + rows_px


def test_that_neighbouring_warm_up_steps_make_one_band(panel: Panel) -> None:
    panel.begin()
    samples = steps([800.0, 200.0, 200.0, 200.0])
    phases = ("compile", "warmup", "warmup", "steady")
    panel.add([Sample(**{**fields(s), "phase": p}) for s, p in zip(samples, phases, strict=True)])
    bands = panel.widget.throughput.plot.annotations.timeline().bands
    assert [(b.kind, b.start_s, pytest.approx(b.end_s)) for b in bands] == [
        ("compile", 0.0, 0.8),
        ("warm-up", 0.8, 1.2),
    ]


def fields(sample: Sample) -> dict[str, object]:
    return {name: getattr(sample, name) for name in Sample.__dataclass_fields__}


def test_that_hatching_is_painted_over_compilation_only(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([1000.0, *[10.0] * 100]))
    panel.widget.end_run(1)
    panel.widget.redraw()
    plot = panel.plot("loss_plot")
    view = plot.getPlotItem().getViewBox()
    image = plot.grab().toImage()

    def hatched(from_s: float, to_s: float) -> int:
        top = view.mapViewToScene(QPointF(from_s, view.viewRange()[1][1]))
        right = view.mapViewToScene(QPointF(to_s, 0)).x()
        inside = ((x, int(top.y()) + y) for x in range(int(top.x()), int(right)) for y in range(4, 40))
        return sum(image.pixelColor(x, y).name() == LIGHT.grid for x, y in inside)

    assert hatched(0.3, 0.7) > 100
    assert hatched(1.3, 1.7) == 0


def test_that_empty_plots_teach_and_those_with_data_are_silent(panel: Panel) -> None:
    assert "Press Start (F5)" in panel.words("throughput_plot")[0]
    assert all(panel.words(name)[0] for name in NAMES)
    panel.begin()
    assert [panel.words(name) for name in NAMES] == [["Waiting for the first step."]] * 4
    panel.add(steps([800.0, 300.0]))
    panel.widget.redraw()
    assert [panel.words(name) for name in NAMES] == [[]] * 4


def test_that_generation_has_milliseconds_a_token_and_no_loss(panel: Panel) -> None:
    config = RunConfig(workload="generate", device="cuda:0", batch=1)
    panel.begin(config)
    panel.add(steps([30.0, *[5.0] * 300], first="prefill", tokens=1, trains=False))
    panel.widget.redraw()
    assert panel.words("loss_plot") == ["No loss in generation."]
    assert panel.text("step_readout") == "5.00 ms/token"
    assert panel.text("rate_readout") == "200.0 tokens/s"
    assert panel.plot("step_time_plot").getAxis("left").labelText == "ms/token"
    assert panel.curve("step_time_plot")[1][0] == 30.0


def test_that_progress_is_said_while_no_steps_come(panel: Panel) -> None:
    panel.begin()
    panel.widget.show_progress("compiling 12 blocks, 14 s")
    label = panel.widget.findChild(QLabel, "progress_label")
    assert label.isVisible()
    assert label.text() == "compiling 12 blocks, 14 s"
    assert panel.words("throughput_plot") == ["compiling 12 blocks, 14 s"]
    panel.widget.show_progress(None)
    assert not label.isVisible()
    assert panel.words("throughput_plot") == ["Waiting for the first step."]


def test_that_on_the_cpu_memory_is_the_workers_resident(panel: Panel) -> None:
    panel.begin(RunConfig(device="cpu"))
    panel.add(steps([800.0, 300.0], peak_bytes=-1))
    panel.widget.redraw()
    assert panel.text("used_readout") == "512.0 MiB resident in the worker"
    assert not panel.widget.memory.peak_readout.isVisible()
    assert panel.curve("memory_plot")[1].tolist() == [0.5, 0.5]
    assert edges(panel) == {"unsplit": 0.5}


@pytest.mark.parametrize(("peak_gib", "shown"), [(1, False), (9, True)])
def test_that_the_limit_is_drawn_once_memory_comes_near_it(panel: Panel, peak_gib: int, shown: bool) -> None:
    panel.widget.set_device(CARD)
    panel.begin()
    panel.add(steps([800.0, 300.0], peak_bytes=peak_gib * GIB))
    panel.widget.redraw()
    lines = [i for i in panel.plot("memory_plot").getPlotItem().items if isinstance(i, pg.InfiniteLine)]
    assert [line.value() for line in lines if line.isVisible()] == ([16.0] if shown else [])
    assert (panel.range("memory_plot", 1)[1] >= 16) is shown
    assert panel.text("used_readout").endswith("in use of 16.0 GiB")


def test_that_axes_begin_at_zero_hold_the_curve_and_hide_no_factor(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([900.0, *[0.4] * 5000], tokens=8192))
    panel.widget.redraw()
    for name in ("throughput_plot", "memory_plot", "step_time_plot"):
        assert panel.range(name, 1)[0] == 0
    assert panel.range("throughput_plot", 1)[1] > 8192 / 0.4e-3
    assert panel.range("step_time_plot", 1)[1] < 1.0
    axis = panel.plot("throughput_plot").getAxis("left")
    assert axis.autoSIPrefixScale == 1.0
    assert axis.tickStrings([0, 5e6, 2.5e7], 1.0, 5e6) == ["0", "5M", "25M"]
    clock = panel.plot("throughput_plot").getAxis("bottom")
    assert clock.tickStrings([0, 90, 150, 3750], 1.0, 30) == ["0 s", "90 s", "2:30", "1:02:30"]


def test_that_a_frozen_picture_stays_and_catches_up(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([800.0, 300.0]))
    panel.widget.set_frozen(True)
    panel.add(steps([300.0, 300.0], start_s=1.1, first_step=2, first="steady"))
    panel.widget.redraw()
    assert len(panel.curve("throughput_plot")[0]) == 2
    assert any("frozen" in words for words in panel.widget.throughput.legend_words())
    panel.widget.set_frozen(False)
    panel.widget.redraw()
    assert len(panel.curve("throughput_plot")[0]) == 4


def test_that_nothing_is_drawn_while_redraws_are_off(panel: Panel, qtbot: QtBot) -> None:
    panel.begin()
    panel.widget.set_redraw(False)
    panel.add(steps([800.0, 300.0]))
    with qtbot.waitSignals([panel.widget.redraw_timer.timeout] * 2, order="none"):
        pass
    assert len(panel.curve("throughput_plot")[0]) == 0
    panel.widget.set_redraw(True)
    qtbot.waitUntil(lambda: len(panel.curve("throughput_plot")[0]) == 2)


def test_that_zooming_one_plot_moves_the_times_of_all_until_follow(panel: Panel, qtbot: QtBot) -> None:
    panel.begin()
    panel.add(steps([10.0] * 1990))
    panel.widget.redraw()
    assert [panel.range(name, 0) for name in NAMES] == [[0, 20]] * 4
    plot = panel.plot("loss_plot")
    centre = plot.viewport().rect().center()
    wheel = QWheelEvent(
        QPointF(centre),
        QPointF(plot.viewport().mapToGlobal(centre)),
        QPoint(),
        QPoint(0, 240),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(plot.viewport(), wheel)
    zoomed = panel.range("loss_plot", 0)
    assert 0 < zoomed[0] < zoomed[1] < 20
    panel.widget.redraw()
    assert [panel.range(name, 0) for name in NAMES] == [zoomed] * 4
    panel.add(steps([10.0] * 3000, start_s=19.9, first_step=1990, first="steady"))
    panel.widget.redraw()
    assert panel.range("throughput_plot", 0) == zoomed
    qtbot.mouseClick(panel.widget.findChild(QToolButton, "follow_button"), Qt.MouseButton.LeftButton)
    panel.widget.redraw()
    assert [panel.range(name, 0) for name in NAMES] == [[0, 60]] * 4


def test_that_a_run_begun_next_clears_the_one_before(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([800.0, 300.0]))
    panel.widget.redraw()
    panel.begin(run_id=2)
    assert len(panel.curve("throughput_plot")[0]) == 0
    panel.add(steps([100.0]), run_id=1)
    panel.widget.redraw()
    assert len(panel.curve("throughput_plot")[0]) == 0
    assert panel.text("rate_readout") == "– tokens/s"


@pytest.mark.parametrize("dark", [False, True])
def test_that_the_plots_ground_is_that_of_the_look(panel: Panel, dark: bool) -> None:
    panel.widget.apply_theme(dark)
    image = panel.plot("throughput_plot").grab().toImage()
    assert image.pixelColor(2, 2).name() == ("#1d2125" if dark else "#f6f7f8")


def test_that_a_million_samples_are_drawn_from_all_of_them(panel: Panel, capsys: pytest.CaptureFixture[str]) -> None:
    panel.begin()
    count = 1_000_000
    columns = {name: np.zeros(count, old.dtype) for name, old in as_columns([]).items()}
    columns["phase"][:] = PHASE_CODES["steady"]
    columns["step_ms"][:] = 0.5
    columns["step_ms"][623_456] = 0.05
    columns["tokens"][:] = 8
    columns["time_s"][:] = np.cumsum(columns["step_ms"]) / 1e3
    panel.log.run(1).columns.extend(columns)
    panel.widget.redraw()
    QApplication.processEvents()
    took_ms: list[float] = []
    for i in range(20):
        panel.add(steps([0.5] * 300, start_s=500 + 0.15 * i, first_step=count + 300 * i, first="steady", tokens=8))
        begun_s = time.thread_time()
        panel.widget.redraw()
        QApplication.processEvents()
        took_ms.append(1e3 * (time.thread_time() - begun_s))
    with capsys.disabled():
        median_ms, p95_ms = np.median(took_ms), np.quantile(took_ms, 0.95)
        print(f"\na million samples: redraw and painting median {median_ms:.1f}, p95 {p95_ms:.1f} ms of a core")  # noqa: T201
    # Nobody asks how far the data reach: the plots set their ranges themselves.
    assert not [axis for axis in (0, 1) if panel.plot("throughput_plot").getViewBox().childrenBounds()[axis]]
    x, y = panel.curve("throughput_plot", 1)
    assert len(x) <= 2 * panel.plot("throughput_plot").width()
    # The single fast step among a million is still to be seen.
    assert y.max() == pytest.approx(8 / 0.05e-3)


def test_that_the_place_of_the_loss_can_show_norms_and_scales_on_a_logarithmic_axis(panel: Panel) -> None:
    norms, scales = (1.0, 100.0, math.inf, 1e4), (65536.0, 65536.0, 32768.0, math.nan)
    panel.begin()
    panel.add(
        [
            dataclasses.replace(sample, grad_norm=norm, loss_scale=scale)
            for sample, norm, scale in zip(steps([100.0] * 4), norms, scales, strict=True)
        ]
    )
    panel.widget.redraw()
    plain = panel.curve("loss_plot")[1].tolist()
    panel.widget.findChild(QAction, "curve_grad_norm_action").trigger()
    panel.widget.redraw()
    assert panel.curve("loss_plot")[1].tolist() == pytest.approx([0.0, 2.0, math.nan, 4.0], nan_ok=True)
    assert panel.text("loss_readout") == "1e+04 "
    axis = panel.plot("loss_plot").getPlotItem().getAxis("left")
    assert axis.tickStrings([0.0, 2.0], 1.0, 1.0) == ["1", "100"]
    assert axis.tickStrings([6.0, 7 + math.log10(5), 400.0], 1.0, 1.0) == ["1e6", "5e7", "1e400"]
    assert axis.labelText == "norm"
    low, high = panel.range("loss_plot", 1)
    assert low <= 0.0
    assert high >= 4.0
    panel.widget.findChild(QAction, "curve_loss_scale_action").trigger()
    panel.widget.redraw()
    assert panel.curve("loss_plot")[1][2] == pytest.approx(math.log10(32768))
    panel.widget.findChild(QAction, "curve_loss_action").trigger()
    panel.widget.redraw()
    assert panel.curve("loss_plot")[1].tolist() == plain
    assert axis.tickStrings([0.0, 2.0], 1.0, 1.0) == ["0", "2"]


def test_that_a_scale_that_no_step_had_is_told_and_not_drawn(panel: Panel) -> None:
    panel.begin()
    panel.widget.findChild(QAction, "curve_loss_scale_action").trigger()
    panel.add(steps([100.0] * 4))
    panel.widget.redraw()
    assert panel.words("loss_plot") == ["No loss scale: only fp16 has one."]
    panel.widget.findChild(QAction, "curve_loss_action").trigger()
    panel.widget.redraw()
    assert panel.words("loss_plot") == []


def test_that_power_and_clock_can_be_drawn_in_generation_as_well(panel: Panel) -> None:
    panel.begin(dataclasses.replace(TRAIN, workload="generate"))
    panel.add([dataclasses.replace(s, power_w=500.0 + s.step) for s in steps([50.0] * 8, trains=False)])
    panel.widget.redraw()
    assert panel.words("loss_plot") == ["No loss in generation."]
    panel.widget.findChild(QAction, "curve_power_w_action").trigger()
    panel.widget.redraw()
    assert panel.words("loss_plot") == []
    assert panel.curve("loss_plot")[1].tolist() == pytest.approx([500.0 + i for i in range(8)])
    assert panel.text("loss_readout") == "507 W"
    assert panel.plot("loss_plot").getPlotItem().getAxis("left").labelText == "W"
    panel.widget.findChild(QAction, "curve_sm_clock_mhz_action").trigger()
    panel.widget.redraw()
    assert panel.words("loss_plot") == ["This device does not say its clock."]
    panel.widget.findChild(QAction, "curve_grad_norm_action").trigger()
    panel.widget.redraw()
    assert panel.words("loss_plot") == ["No gradients in generation."]


def test_that_the_axis_of_the_loss_is_logarithmic_where_that_is_asked_for(panel: Panel) -> None:
    panel.begin()
    panel.add([dataclasses.replace(s, loss=loss) for s, loss in zip(steps([100.0] * 3), (10.0, 1.0, 0.1), strict=True)])
    log = panel.widget.findChild(QAction, "curve_log_action")
    assert not log.isChecked()
    log.trigger()
    panel.widget.redraw()
    assert panel.curve("loss_plot")[1].tolist() == pytest.approx([1.0, 0.0, -1.0])
    axis = panel.plot("loss_plot").getPlotItem().getAxis("left")
    assert axis.tickStrings([0.0, 1.0], 1.0, 1.0) == ["1", "10"]
    log.trigger()
    panel.widget.redraw()
    assert panel.curve("loss_plot")[1].tolist() == pytest.approx([10.0, 1.0, 0.1])


def test_that_the_pointer_reads_all_plots_at_one_step(panel: Panel) -> None:
    panel.begin()
    panel.add(steps([100.0, 100.0, 200.0, 100.0]))
    panel.widget.redraw()
    QApplication.processEvents()

    def point(time_s: float) -> list[tuple[float, str] | None]:
        plot = panel.plot("step_time_plot")
        view = plot.getPlotItem().getViewBox()
        place = plot.mapFromScene(view.mapViewToScene(QPointF(time_s, 1.0)))
        QTest.qWait(20)  # pyqtgraph leaves out moves within 10 ms of the last one
        QTest.mouseMove(plot.viewport(), place)
        QApplication.processEvents()
        return [panel.plot(name).crosshair() for name in NAMES]

    seen = point(0.3)
    assert [words for _, words in seen] == ["2.56k tokens/s", "3.00 GiB in a step", "4.980 nats", "step 2: 200.0 ms"]
    assert [time_s for time_s, _ in seen] == pytest.approx([0.4] * 4), "at the end of the step that it is within"
    assert point(1.9)[3] == (pytest.approx(0.5), "step 3: 100.0 ms"), "past the end: the last one"
    panel.plot("step_time_plot").leaveEvent(QEvent(QEvent.Type.Leave))
    assert [panel.plot(name).crosshair() for name in NAMES] == [None] * 4
