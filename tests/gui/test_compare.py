"""Comparing in the window: pins, the command that is sent, what is drawn while it goes on, and the verdict."""

from __future__ import annotations

import csv
import dataclasses
import random
import statistics
import time
from pathlib import Path
from types import SimpleNamespace

import pyqtgraph as pg
import pytest
from PySide6.QtCore import QItemSelectionModel
from PySide6.QtGui import QAction, QColor
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QFileDialog,
    QLabel,
    QPushButton,
    QSpinBox,
    QStackedWidget,
    QTableView,
    QToolButton,
)
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.gui.main_window import MainWindow
from explorer.gui.palette import a_colour, b_colour
from explorer.gui.verdict_words import checks_words
from explorer.messages import (
    BlockEnded,
    Compare,
    ParityChecked,
    Problem,
    Profiled,
    Progress,
    Reconfigure,
    RunEnded,
    SegmentStarted,
    Start,
    Stop,
    Verify,
    WorkerLost,
    WorkerReady,
)
from explorer.results.checks import Checks
from explorer.results.parity import Arm, Measure, Parity
from explorer.results.sample import Segment

A_MS, B_MS = 60.0, 40.0


@pytest.fixture
def bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Its window opens set to train: of what generates Compare shows the texts, see test_text_pair.py."""
    open_window = bench.open

    def opened(*argv: str) -> MainWindow:
        window = open_window(*argv)
        bench.choose("workload_combo", "train")
        return window

    monkeypatch.setattr(bench, "open", opened)
    return bench


def pinned(bench: Bench) -> None:
    """A is as the window opens, the settings of the moment have SDPA; nothing is checked afterwards."""
    bench.find(QCheckBox, "checks_check").setChecked(False)
    bench.find(QAction, "pin_a_action").trigger()
    bench.choose("toggle_attention", "sdpa")


def compared(bench: Bench) -> Compare:
    """Pin, press Compare and return the command that came of it; both arms have begun."""
    pinned(bench)
    bench.find(QPushButton, "compare_button").click()
    return begun(bench)


def begun(bench: Bench) -> Compare:
    bench.until(lambda: any(isinstance(c, Compare) for c in bench.worker.commands))
    command = next(c for c in reversed(bench.worker.commands) if isinstance(c, Compare))
    segment = Segment(index=0, first_step=0, changes=(), started_at="2026-01-01T00:00:00+00:00")
    for run_id, arm in zip(command.run_ids, command.arms, strict=True):
        bench.say(SegmentStarted(run_id=run_id, config=arm, segment=segment), steps(run_id, 0, 12))
    return command


def pair(command: Compare, number: int, a_ms: float, b_ms: float, *, b_clock: float = 1980.0) -> list[BlockEnded]:
    clocks = (1980.0, b_clock)
    return [
        BlockEnded(
            run_id=command.run_ids[arm], arm=arm, pair=number, steps=10, step_ms_median=ms, sm_clock_mhz=clocks[arm]
        )
        for arm, ms in enumerate((a_ms, b_ms))
    ]


def ended(bench: Bench, command: Compare) -> None:
    bench.say(*(RunEnded(run_id=run_id, outcome="stopped") for run_id in command.run_ids))


def points(bench: Bench, plot: str, item: int) -> list[tuple[float, float]]:
    x, y = bench.find(pg.GraphicsView, plot).getPlotItem().listDataItems()[item].getData()
    return [] if x is None else list(zip(x, y, strict=True))


def said(bench: Bench) -> str:
    return bench.find(QLabel, "verdict_label").text() + " " + bench.find(QLabel, "details_label").text()


def test_that_a_pinned_configuration_is_compared_with_the_settings_of_the_moment(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "train")
    bench.find(QSpinBox, "seed_spin").setValue(5)
    command = compared(bench)
    a, b = command.arms
    assert a == dataclasses.replace(bench.config, levels=(("dropout", "off"),))
    assert b == bench.config.with_level("dropout", "off")
    assert command.seed == 5
    assert command.block_s == 2.0
    assert bench.find(QStackedWidget, "views").currentWidget() is window.panels.compare
    assert bench.find(QLabel, "compare_b_label").text() == "B  attention naive → sdpa"
    assert not bench.find(QPushButton, "start_button").isEnabled()
    ended(bench, command)


def test_that_blocks_and_interval_are_drawn_as_they_come_and_a_disturbed_pair_is_crossed_out(bench: Bench) -> None:
    bench.open()
    command = compared(bench)
    noise = random.Random(1)
    times = [(A_MS + noise.uniform(-2, 2), B_MS + noise.uniform(-2, 2)) for _ in range(6)]
    for number, (a_ms, b_ms) in enumerate(times):
        bench.say(*pair(command, number, a_ms, b_ms, b_clock=1700.0 if number == 4 else 1980.0))
    assert points(bench, "blocks_plot", 0) == [(n + 1, a) for n, (a, _) in enumerate(times)]
    assert points(bench, "blocks_plot", 1) == [(n + 1, b) for n, (_, b) in enumerate(times)]
    assert points(bench, "blocks_plot", 2) == [(5, times[4][0]), (5, times[4][1])]
    counted = [t for n, t in enumerate(times) if n != 4]
    ratio = statistics.median(a for a, _ in counted) / statistics.median(b for _, b in counted)
    low, high, middle = (points(bench, "interval_plot", item)[-1] for item in range(3))
    assert middle == (5, pytest.approx(ratio))
    assert low[1] < middle[1] < high[1]
    assert bench.window.panels.compare.ratio_readout.text().startswith(f"{ratio:.3f}x")
    assert bench.window.panels.compare.pairs_readout.text() == "5 pairs"
    (floor,) = (i for i in bench.find(pg.GraphicsView, "interval_plot").items() if isinstance(i, pg.LinearRegionItem))
    assert floor.getRegion() == pytest.approx((1 / 1.005, 1.005))
    assert floor.isVisible()
    bench.find(QPushButton, "compare_button").click()
    ended(bench, command)
    assert "2 disturbed blocks dropped" in said(bench)


def test_that_a_narrow_interval_ends_it_with_a_verdict_to_copy_and_export(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = bench.open()
    bench.choose("workload_combo", "train")
    command = compared(bench)
    for number in range(7):
        bench.say(*pair(command, number, A_MS, B_MS))
    assert not any(isinstance(c, Stop) for c in bench.worker.commands)
    assert not bench.find(QPushButton, "export_comparison_button").isEnabled()
    bench.say(*pair(command, 7, A_MS, B_MS))
    bench.until(lambda: bench.worker.commands[-1] == Stop(run_id=command.run_ids[0]))
    ended(bench, command)
    assert not window.bridge.going
    assert bench.find(QPushButton, "start_button").isEnabled()
    assert said(bench).startswith("B is faster: 1.500x the speed of A (1.500 – 1.500). 8 pairs, settled")
    bench.find(QPushButton, "copy_verdict_button").click()
    copied = QApplication.clipboard().text()
    assert copied.startswith("attention naive -> sdpa against + dropout off: faster, 1.500x (1.500-1.500)")

    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "ab.csv"), ""))
    bench.find(QPushButton, "export_comparison_button").click()
    with (tmp_path / "ab.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["verdict"], row["ended_by"], row["n_pairs"]) == ("faster", "settled", "8")
    assert float(row["speedup"]) == 1.5
    assert (row["a_attention"], row["b_attention"], row["a_dropout"]) == ("naive", "sdpa", "off")
    assert row["device_name"] == "Small CPU"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "ab.md"), ""))
    bench.find(QPushButton, "export_comparison_button").click()
    lines = (tmp_path / "ab.md").read_text().splitlines()
    assert lines[0] == copied
    assert "| b_attention | sdpa |" in lines


def test_that_stop_ends_it_with_what_there_is(bench: Bench) -> None:
    window = bench.open()
    command = compared(bench)
    button = bench.find(QPushButton, "compare_button")
    assert "Stop" in button.text()
    for number in range(3):
        bench.say(*pair(command, number, A_MS, A_MS))
    bench.find(QPushButton, "stop_button").click()
    bench.until(lambda: bench.worker.commands[-1] == Stop(run_id=command.run_ids[0]))
    assert window.bridge.state == "stopping"
    ended(bench, command)
    assert said(bench).startswith("Unsettled: B has 1.000x the speed of A so far")
    assert "3 pairs, stopped" in said(bench)
    assert button.text() == "Compare"


def test_that_it_is_over_when_the_budget_is_spent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.open()
    bench.find(QCheckBox, "keep_dropout_check").setChecked(True)
    budget = bench.find(QSpinBox, "budget_spin")
    budget.setValue(budget.minimum())
    now_s = [time.monotonic()]
    monkeypatch.setattr("explorer.experiments.compare.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    command = compared(bench)
    assert [arm.level("dropout") for arm in command.arms] == [None, None]
    bench.say(*pair(command, 0, A_MS, B_MS), *pair(command, 1, A_MS * 1.5, B_MS))
    now_s[0] += budget.minimum() - 0.1
    bench.say(steps(command.run_ids[0], 12, 1))
    assert not any(isinstance(c, Stop) for c in bench.worker.commands)
    now_s[0] += 0.2
    bench.until(lambda: bench.worker.commands[-1] == Stop(run_id=command.run_ids[0]))
    ended(bench, command)
    assert "2 pairs, budget spent" in said(bench)


def test_that_two_rows_of_the_table_can_be_compared(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    changed = start.config.with_level("attention", "sdpa")
    segment = Segment(
        index=1, first_step=5, changes=("attention naive -> sdpa",), started_at="2026-01-01T00:00:01+00:00"
    )
    bench.say(SegmentStarted(run_id=start.run_id, config=changed, segment=segment))
    bench.end(start)
    table = bench.find(QTableView, "runs_table")
    bench.until(lambda: table.model().rowCount() == 2)
    rows = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    for row in (0, 1):
        table.selectionModel().select(table.model().index(row, 0), rows)
    bench.find(QAction, "compare_rows_action").trigger()
    command = begun(bench)
    assert [arm.level("attention") for arm in command.arms] == [None, "sdpa"]
    assert (window.pins.a, window.pins.b) == (start.config, changed)
    bench.until(lambda: table.model().rowCount() == 4)
    named = [table.model().index(row, 1).data() for row in (2, 3)]
    assert [name[:3] for name in named] == ["A: ", "B: "]
    swatches = [table.model().index(row, 0).data(1) for row in (2, 3)]
    dark = window.panels.pins._dark
    assert [QColor(s.toImage().pixelColor(2, 6)) for s in swatches] == [a_colour(dark), b_colour(dark)]
    ended(bench, command)


def test_that_a_selected_row_is_pinned_while_the_table_has_the_focus(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.end(start)
    bench.choose("toggle_attention", "sdpa")
    table = bench.find(QTableView, "runs_table")
    bench.until(lambda: table.model().rowCount() == 1)
    window.activateWindow()
    table.setFocus()
    table.selectRow(0)
    bench.find(QAction, "pin_b_action").trigger()
    assert window.pins.b == start.config
    bench.find(QSpinBox, "batch_spin").setFocus()
    bench.find(QAction, "pin_a_action").trigger()
    assert window.pins.a == bench.config
    bench.find(QAction, "swap_pins_action").trigger()
    assert (window.pins.a, window.pins.b) == (start.config, bench.config)


def test_that_chips_say_what_is_pinned_and_give_it_back(bench: Bench) -> None:
    window = bench.open()
    first = bench.config
    chips = [bench.find(QToolButton, f"pin_{letter}_button") for letter in "ab"]
    assert [chip.accessibleName() for chip in chips] == ["A  not pinned", "B  now: the settings"]
    assert not bench.find(QPushButton, "compare_button").isEnabled()
    pinned(bench)
    assert [chip.accessibleName() for chip in chips] == ["A  fp32 baseline", "B  now: attention naive → sdpa"]
    bench.find(QAction, "chip_settings_a_action").trigger()
    assert bench.config == first
    bench.find(QAction, "chip_release_a_action").trigger()
    assert window.pins.a is None
    bench.find(QAction, "compare_action").trigger()
    assert "Pin the settings" in window.messages.text
    assert not window.bridge.going


def test_that_a_run_that_is_going_is_stopped_first_when_that_is_wanted(bench: Bench) -> None:
    window = bench.open()
    bench.find(QAction, "pin_a_action").trigger()
    start = bench.start()
    bench.find(QAction, "compare_action").trigger()
    assert "a comparison needs the device to itself" in window.messages.text
    bench.find(QPushButton, "message_button").click()
    bench.until(lambda: bench.worker.commands[-1] == Stop(run_id=start.run_id))
    bench.end(start)
    command = begun(bench)
    assert command.run_ids == (start.run_id + 1, start.run_id + 2)
    ended(bench, command)


def test_that_settings_changed_meanwhile_are_for_later(bench: Bench) -> None:
    bench.open()
    command = compared(bench)
    bench.find(QSpinBox, "seed_spin").setValue(9)
    bench.choose("toggle_attention", "naive")
    assert not any(isinstance(c, Reconfigure | Start) for c in bench.worker.commands)
    assert bench.config.seed == 9
    ended(bench, command)


def test_that_what_cannot_be_compared_is_refused_with_its_reason(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    window.pins.pin(0, dataclasses.replace(bench.config, workload="generate"))
    bench.find(QAction, "compare_action").trigger()
    assert "A is to generate and B to train" in window.messages.text
    window.pins.pin(0, dataclasses.replace(bench.config, device="cpu"))
    bench.find(QAction, "compare_action").trigger()
    assert "A is for cpu and B for cuda:0" in window.messages.text
    window.pins.pin(0, bench.config.with_level("attention", "flash"))
    bench.find(QAction, "compare_action").trigger()
    assert "A: Attention: FlashAttention computes in 16 bits only" in window.messages.text
    assert not window.bridge.going


def test_that_a_lost_worker_ends_it_and_keeps_what_was_measured(bench: Bench) -> None:
    window = bench.open()
    command = compared(bench)
    for number in range(2):
        bench.say(*pair(command, number, A_MS, B_MS))
    bench.worker.say(WorkerLost(exit_code=-9, last_words="Killed"))
    bench.until(lambda: not window.bridge.going)
    assert "Killed" in window.messages.text
    assert "2 pairs, stopped" in said(bench)
    assert [window.log.run(run_id).outcome for run_id in command.run_ids] == ["failed", "failed"]
    bench.find(QPushButton, "compare_button").click()
    again = begun(bench)
    assert again.run_ids == (3, 4), "checks take no number"
    assert len(bench.workers) == 2
    ended(bench, again)


def test_that_a_worker_which_does_not_stop_can_be_ended(bench: Bench) -> None:
    window = bench.open()
    command = compared(bench)
    for number in range(2):
        bench.say(*pair(command, number, A_MS, B_MS))
    bench.find(QPushButton, "stop_button").click()
    bench.until(lambda: "takes longer than 2 s" in window.messages.text)
    bench.find(QPushButton, "message_button").click()
    bench.until(lambda: len(bench.workers) == 2 and window.bridge.state == "ready")
    assert not window.bridge.going
    assert [window.log.run(run_id).outcome for run_id in command.run_ids] == ["stopped", "stopped"]
    assert "2 pairs, stopped" in said(bench)


def test_that_a_comparison_waits_for_the_worker_and_can_be_called_off(bench: Bench) -> None:
    bench.here = None
    window = bench.open()
    pinned(bench)
    bench.find(QPushButton, "compare_button").click()
    assert window.bridge.going
    bench.find(QPushButton, "stop_button").click()
    assert not window.bridge.going
    assert [run.outcome for run in window.log.runs] == ["stopped", "stopped"]
    bench.find(QPushButton, "compare_button").click()
    bench.say(WorkerReady(environment=environment(CPU)))
    ended(bench, begun(bench))


def test_that_it_says_what_is_being_done_before_the_first_block(bench: Bench) -> None:
    bench.open()
    pinned(bench)
    bench.find(QPushButton, "compare_button").click()
    bench.until(lambda: bool(bench.worker.commands))
    command = bench.worker.commands[-1]
    assert isinstance(command, Compare)
    bench.say(Progress(run_id=command.run_ids[0], activity="Loading the model", done=3, total=12, unit="M parameters"))
    assert said(bench).strip() == "Loading the model: 3 of 12 M parameters"
    begun(bench)
    assert "B runs alone until its step time settles: 12 steps" in said(bench)
    bench.find(QPushButton, "compare_button").click()
    ended(bench, command)
    assert "at least two pairs" in said(bench)


def test_that_numbers_and_proof_are_checked_after_the_verdict_and_stand_in_the_export(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = bench.open()
    pinned(bench)
    bench.find(QCheckBox, "checks_check").setChecked(True)
    bench.find(QPushButton, "compare_button").click()
    command = begun(bench)
    for number in range(8):
        bench.say(*pair(command, number, A_MS, B_MS))
    ended(bench, command)
    bench.until(lambda: isinstance(bench.worker.commands[-1], Verify))
    verify = bench.worker.commands[-1]
    assert isinstance(verify, Verify)
    assert (verify.parity, verify.proof) == (command.arms[1:], command.arms), "A is float32 itself"
    assert said(bench).startswith("B is faster")
    assert window.bridge.going
    why = Problem(what="Not profiled", why="no kernels were seen")
    bench.say(ParityChecked(run_id=verify.run_id, config=command.arms[1], found=why))
    bench.say(*(Profiled(run_id=verify.run_id, config=arm, found=why) for arm in command.arms))
    bench.say(RunEnded(run_id=verify.run_id, outcome="completed"))
    bench.until(lambda: not window.bridge.going)
    label = bench.find(QLabel, "checks_label")
    assert label.text() == "Numbers: A reference, B failed. Toggles: A failed, B failed."
    assert label.property("severity") == "problem"
    assert "no kernels were seen" in label.toolTip()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "ab.csv"), ""))
    bench.find(QPushButton, "export_comparison_button").click()
    with (tmp_path / "ab.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["a_parity"], row["b_parity"], row["b_proof"]) == ("reference", "failed", "failed")


def test_that_what_a_format_costs_the_text_stands_beside_the_verdict() -> None:
    arms = {"reference": Arm(perplexity=12.0), "yardstick": Arm(), "asked": Arm(perplexity=12.6)}
    measure = Measure(kind="logits", value=0.01, yardstick=0.01, allowed=0.02)
    found = Checks(parity=Parity(measures=(measure,), batch=1, logits_max_abs=0.1, **arms))
    assert checks_words((Checks(is_reference=True), found)) == (
        "Numbers: A reference, B within tolerance. Toggles: A not checked, B not checked. "
        "Perplexity of held-out text: A 12, B 12.6 (1.0500x)."
    )
