"""The diagnosis in the window: what is found stands there, what to try is one click, a closer look is one more."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pyqtgraph as pg
import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QDockWidget, QLabel, QPushButton, QTableView, QTextBrowser
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig
from explorer.gui import diagnosis_control
from explorer.gui.app import create
from explorer.gui.language import from_below
from explorer.messages import (
    Problem,
    Profiled,
    Progress,
    Reconfigure,
    RunEnded,
    Samples,
    SegmentStarted,
    Start,
    Stop,
    Verify,
)
from explorer.results.diagnosis import diagnosis
from explorer.results.loss_watch import LossWatch
from explorer.results.proof import Kernel, Profile
from explorer.results.sample import Segment


@pytest.fixture
def shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A window on the screen, on a machine with a GPU, whose panel looks at the run as often as it can."""
    monkeypatch.setattr(diagnosis_control, "EVERY_S", 0.0)
    bench.here = environment(GPU, CPU)
    window = bench.open()
    window.show()
    bench.choose("workload_combo", "train")
    QApplication.processEvents()
    return bench


def trained(bench: Bench, count: int = 40, **fields: Any) -> Start:
    start = bench.start()
    bench.say(steps(start.run_id, 0, count, **fields))
    return start


def texts(bench: Bench, prefix: str) -> dict[str, str]:
    """What stands in the panel's labels and buttons whose names begin so, where it can be seen."""
    QApplication.processEvents()
    panel = bench.window.panels.diagnosis
    widgets = [*panel.findChildren(QLabel), *panel.findChildren(QPushButton)]
    return {w.objectName(): w.text() for w in widgets if w.objectName().startswith(prefix) and w.isVisible()}


def test_that_before_a_run_the_panel_teaches_and_offers_nothing(shown: Bench) -> None:
    assert "Press Start (F5)" in texts(shown, "diagnosis_empty")["diagnosis_empty"]
    assert not shown.find(QPushButton, "look_closer_button").isEnabled()
    assert texts(shown, "diagnosis_progress") == {"diagnosis_progress": "Start a run first."}
    assert not shown.find(QAction, "look_closer_action").isEnabled()


def test_that_a_finding_stands_there_while_the_run_goes_and_its_button_flips_the_toggle(shown: Bench) -> None:
    window = shown.window
    start = trained(shown, host_ms=2.0, data_wait_ms=30.0)
    found = texts(shown, "finding_")
    assert found["finding_data"] == "Data-bound: a step waited 30.0 of 50.0 ms for its batch (60%)."
    assert found["finding_device"] == "The GPU set the pace: Python was done with a step after 32.0 of 50.0 ms."
    assert texts(shown, "diagnosis_heading")["diagnosis_heading"].endswith(", so far")
    assert texts(shown, "diagnosis_unknown")["diagnosis_unknown"] == (
        "Not known: what filled the steps: none was profiled."
    )
    shown.say(steps(start.run_id, 40, 1000, host_ms=48.0, data_wait_ms=0.0))
    assert list(texts(shown, "finding_")) == ["finding_host"], "the newest steps count"
    before = shown.config
    button = shown.find(QPushButton, "try_compile")
    button.click()
    (changed,) = [c for c in shown.worker.commands if isinstance(c, Reconfigure)]
    assert changed.config.level("compile") == shown.config.level("compile") == "model"
    assert not button.isEnabled()
    assert texts(shown, "obstacle_compile") == {"obstacle_compile": "It is set: the run goes on with it."}
    shown.find(QAction, "undo_action").trigger()
    assert shown.config == before, "one step to undo"
    assert button.isEnabled()
    shown.end(start)
    assert shown.find(QPushButton, "try_compile") is button, "the same findings keep their buttons"
    assert window.panels.diagnosis.isVisible()


def test_that_what_cannot_run_here_is_greyed_with_its_reason(shown: Bench) -> None:
    window = shown.window
    window.intent.change(levels=(("precision", "fp16"),))
    trained(shown, host_ms=48.0)
    assert shown.find(QPushButton, "try_compile").isEnabled()
    button = shown.find(QPushButton, "try_cuda_graph")
    assert not button.isEnabled()
    reason = texts(shown, "obstacle_cuda_graph")["obstacle_cuda_graph"]
    assert "fp16" in reason
    assert button.accessibleDescription() == reason


def test_that_a_batch_too_large_shows_cause_cure_and_both_ways_out(shown: Bench) -> None:
    start = trained(shown, 3)
    problem = Problem(
        what="Out of memory",
        why="batch 512 x 1024 tokens does not fit",
        remedy="The largest batch that fits is 48; with checkpointing=all this one takes 60.0 GiB.",
        flips=(("checkpointing", "all"),),
        batch=48,
    )
    shown.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    assert texts(shown, "finding_failed")["finding_failed"] == "Out of memory."
    assert texts(shown, "why_failed")["why_failed"] == "Batch 512 x 1024 tokens does not fit."
    assert texts(shown, "cure_failed")["cure_failed"] == problem.remedy
    assert list(texts(shown, "try_")) == ["try_batch", "try_checkpointing"]
    shown.find(QPushButton, "try_batch").click()
    assert shown.config.batch == 48
    shown.find(QPushButton, "try_checkpointing").click()
    assert shown.config.level("checkpointing") == "all"
    assert "start a run (F5)" in texts(shown, "obstacle_")["obstacle_batch"]


def test_that_a_loss_that_is_no_number_comes_with_the_curve_of_its_norms_and_a_lower_rate(shown: Bench) -> None:
    shown.window.intent.change(lr=0.5)
    start = shown.start()
    told = steps(start.run_id, 0, 20)
    blown = [
        dataclasses.replace(
            s, grad_norm=10.0**s.step if s.step < 9 else math.inf, loss=2.0 if s.step < 10 else math.nan
        )
        for s in told.samples
    ]
    shown.say(dataclasses.replace(told, samples=tuple(blown)))
    assert "the loss is nan, after a gradient norm of inf" not in texts(shown, "finding_loss")["finding_loss"]
    assert texts(shown, "finding_loss")["finding_loss"].startswith(
        "Step 10: the loss is nan, at a learning rate of 0.5"
    )
    plot = shown.window.panels.diagnosis.findChild(pg.GraphicsView, "norms_plot")
    line, crosses = plot.getPlotItem().listDataItems()
    assert line.getData()[1][:9].tolist() == pytest.approx(range(9)), "their logarithms"
    assert crosses.getData()[0].tolist() == list(range(9, 20))
    shown.find(QPushButton, "try_lr").click()
    assert shown.config.lr == pytest.approx(0.05)
    shown.end(start)


def profile(busy_ms: float) -> Profile:
    return Profile(
        device="cuda",
        workload="train",
        steps=1,
        kernels=(Kernel(name="nvjet_gemm", count=500, total_us=busy_ms * 1e3),),
        step_ms=40.0,
        busy_ms=busy_ms,
        launches=1000,
        operators=(),
        products=(),
        attention_softmax=(),
        block_forwards=(),
    )


def test_that_a_closer_look_is_taken_by_the_worker_and_can_be_cancelled(shown: Bench) -> None:
    window, look = shown.window, shown.find(QPushButton, "look_closer_button")
    start = trained(shown, host_ms=2.0)
    assert not look.isEnabled()
    assert "Stop the run first" in look.toolTip()
    shown.end(start)
    look.click()
    shown.until(lambda: isinstance(shown.worker.commands[-1], Verify))
    command = shown.worker.commands[-1]
    assert command.proof == (start.config,)
    shown.say(Progress(run_id=command.run_id, activity="proof: profiling"))
    assert texts(shown, "diagnosis_progress")["diagnosis_progress"] == "proof: profiling…"
    assert not look.isVisible()
    assert shown.find(QAction, "stop_action").isEnabled()
    shown.find(QPushButton, "look_closer_cancel").click()
    shown.until(lambda: shown.worker.commands[-1] == Stop(run_id=command.run_id))
    shown.say(RunEnded(run_id=command.run_id, outcome="stopped"))
    shown.until(lambda: not window.bridge.going)
    assert look.isVisible()

    shown.find(QAction, "look_closer_action").trigger()
    shown.until(lambda: isinstance(shown.worker.commands[-1], Verify))
    command = shown.worker.commands[-1]
    shown.say(
        Profiled(run_id=command.run_id, config=start.config, found=profile(16.4)),
        RunEnded(run_id=command.run_id, outcome="completed"),
    )
    shown.until(lambda: not window.bridge.going)
    assert texts(shown, "finding_")["finding_launch"].startswith("Launch-bound: the GPU was busy 41% of the time;")
    assert "try_cuda_graph" in texts(shown, "try_")
    assert texts(shown, "diagnosis_unknown") == {}


def test_that_the_dock_that_the_workload_is_about_comes_to_the_front_and_a_closed_one_stays_closed(
    shown: Bench,
) -> None:
    text, diagnosis = shown.find(QDockWidget, "text_dock"), shown.find(QDockWidget, "diagnosis_dock")
    for workload, front in (("generate", text), ("train", diagnosis), ("generate", text)):
        shown.choose("workload_combo", workload)
        shown.until(lambda front=front: not front.visibleRegion().isEmpty())
        assert (text if front is diagnosis else diagnosis).visibleRegion().isEmpty()
    diagnosis.close()
    shown.choose("workload_combo", "train")
    assert diagnosis.isHidden()


def test_that_nothing_is_diagnosed_behind_another_dock_and_all_of_it_once_it_is_in_front(
    shown: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def look(*args: Any, **named: Any) -> Any:
        looked.append(args)
        return diagnosis(*args, **named)

    monkeypatch.setattr(diagnosis_control, "diagnosis", look)
    text, dock = shown.find(QDockWidget, "text_dock"), shown.find(QDockWidget, "diagnosis_dock")
    text.raise_()
    shown.until(lambda: dock.visibleRegion().isEmpty())
    looked.clear()
    start = trained(shown, data_wait_ms=30.0)
    shown.end(start)
    assert not looked
    dock.raise_()
    shown.until(lambda: "finding_data" in texts(shown, "finding_"))


def test_that_a_look_that_fails_says_why(shown: Bench) -> None:
    shown.end(trained(shown))
    shown.find(QPushButton, "look_closer_button").click()
    shown.until(lambda: isinstance(shown.worker.commands[-1], Verify))
    command = shown.worker.commands[-1]
    problem = Problem(what="The process that took the profile died", why="exit status -9")
    shown.say(
        Profiled(run_id=command.run_id, config=command.proof[0], found=problem),
        RunEnded(run_id=command.run_id, outcome="completed"),
    )
    shown.until(lambda: not shown.window.bridge.going)
    assert "exit status -9" in shown.window.messages.text


def test_that_the_row_that_is_selected_is_shown_until_the_next_run_begins(shown: Bench) -> None:
    shown.end(trained(shown, data_wait_ms=30.0, host_ms=1.0))
    shown.end(trained(shown, data_wait_ms=0.0, host_ms=48.0))
    assert "finding_data" not in texts(shown, "finding_")
    table = shown.find(QTableView, "runs_table")
    shown.until(lambda: table.model().rowCount() == 2)
    table.selectRow(0)
    assert "finding_data" in texts(shown, "finding_")
    assert texts(shown, "diagnosis_heading")["diagnosis_heading"].startswith("Run 1.1")
    start = trained(shown, host_ms=48.0)
    assert texts(shown, "diagnosis_heading")["diagnosis_heading"].startswith("Run 3.1")
    shown.end(start)


def test_that_the_dock_is_closed_and_found_again_from_the_view_menu(shown: Bench, tmp_path: Path) -> None:
    dock = shown.find(QDockWidget, "diagnosis_dock")
    assert dock.toggleViewAction().shortcut().toString() == "Ctrl+Alt+4"
    dock.close()
    shown.window.close()
    _, again = create([])
    shown.qtbot.addWidget(again)
    assert again.findChild(QDockWidget, "diagnosis_dock").isHidden(), "it is remembered"
    again.findChild(QDockWidget, "diagnosis_dock").toggleViewAction().trigger()
    assert not again.findChild(QDockWidget, "diagnosis_dock").isHidden()
    again.close()


def test_that_what_a_run_shows_is_told_in_the_language_of_the_moment(
    shown: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.gui.speech.missing_font", lambda wanted: None)
    shown.end(trained(shown, data_wait_ms=30.0, host_ms=1.0))
    shown.find(QAction, "language_zh_CN_action").trigger()
    told = LossWatch().look(
        [dataclasses.replace(s, grad_norm=1e9, loss=2.0 if s.step < 4 else math.nan) for s in steps(1, 0, 5).samples],
        RunConfig(),
    )
    assert from_below(told[0]) == (
        "第 4 步：损失为 nan，此前梯度范数为 1e+09（学习率 5e-05，grad_clip 1）：权重已不是数值。"
        "速度与显存数据仍然有效；若要继续训练，请以更低的学习率重新开始"
    )
    assert texts(shown, "finding_data")["finding_data"] == "受数据制约：每步 50.0 ms 中有 30.0 ms 在等待批次（60%）。"
    assert all(any("一" <= c <= "鿿" for c in words) for words in texts(shown, "").values() if words)
    shown.find(QAction, "language_en_action").trigger()
    assert texts(shown, "finding_data")["finding_data"].startswith("Data-bound: a step waited 30.0 of 50.0 ms")


def test_that_a_toggle_says_what_it_was_seen_to_do_here(shown: Bench) -> None:
    details = shown.find(QTextBrowser, "toggle_details")
    assert "Here not measured yet: flip it while a run goes, or compare (F6)." in details.toPlainText()
    start = trained(shown, peak_allocated_bytes=3 * 2**30)
    shown.choose("toggle_precision", "bf16")
    (changed,) = [c for c in shown.worker.commands if isinstance(c, Reconfigure)]
    segment = Segment(index=1, first_step=40, changes=(), started_at="")
    faster = [
        dataclasses.replace(s, segment=1, step_ms=25.0, peak_allocated_bytes=2 * 2**30)
        for s in steps(start.run_id, 40, 40).samples
    ]
    shown.say(
        SegmentStarted(run_id=start.run_id, config=changed.config, segment=segment),
        Samples(run_id=start.run_id, samples=tuple(faster)),
    )
    shown.end(start)
    assert "Here run 1.2 (bf16) against 1.1 (fp32): 2.00 × tokens/s, -1.00 GiB in a step;" in details.toPlainText()
