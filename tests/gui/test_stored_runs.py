"""Runs that the window keeps, offers again after a crash, lists, shows, deletes and carries elsewhere."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pyqtgraph as pg
import pytest
from made_samples import segment
from made_samples import steps as made_steps
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QFileDialog,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QTableView,
)
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig
from explorer.gui import stored_runs
from explorer.gui.annotations import Timeline
from explorer.gui.stored_dialog import StoredDialog
from explorer.messages import Problem, Progress, Reconfigure, RunEnded, SegmentStarted, Stop, WorkerReady
from explorer.optimizations.registry import baseline_levels
from explorer.results.export import write_segments
from explorer.results.log import Failure, RunLog, RunRecord
from explorer.results.ring import SampleColumns
from explorer.results.sample import Segment
from explorer.results.store import Store
from explorer.results.ways_out import WaysOut

TRAIN = RunConfig(model="mini", batch=4, seq=128, device="cpu")


def run_of(config: RunConfig = TRAIN, *, ended: bool = True, step_ms: float = 50.0, text: str = "") -> RunRecord:
    """A run of 40 steps in two segments, made on a machine with the CPU of the bench."""
    log = RunLog()
    log.set_environment(environment(GPU, CPU) if config.device != "cpu" else environment(CPU))
    record = log.begin_run(1, config)
    log.begin_segment(1, config, segment())
    log.append(1, made_steps([step_ms] * 20))
    other = config.with_level("attention", "sdpa")
    log.begin_segment(1, other, segment(1, 20, "attention naive -> sdpa"))
    log.append(1, made_steps([step_ms] * 20, start_s=1.0, first_step=20, index=1))
    log.append_text(1, text)
    if ended:
        log.end(1, "completed")
    return record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stored" / "runs.sqlite"


def keep(path: Path, *records: RunRecord, seconds_ago: float = 0.0) -> None:
    """Store these runs as another program would have, so long ago."""
    with Store(path) as store:
        store.keep(records)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE runs SET seen_at = seen_at - ?", (seconds_ago,))
    connection.close()


def outcomes(path: Path) -> list[str]:
    with Store(path, read_only=True) as store:
        return [line.outcome for line in store.runs().runs]


def opened(bench: Bench) -> StoredDialog:
    """The list of stored runs, filled."""
    bench.find(QAction, "open_stored_action").trigger()
    dialog: StoredDialog = bench.find(StoredDialog, "stored_dialog")
    bench.until(lambda: "Reading" not in bench.find(QLabel, "stored_count").text())
    return dialog


def column(dialog: StoredDialog, number: int) -> list[str]:
    model = dialog.table.model()
    return [model.index(row, number).data() for row in range(model.rowCount())]


def rows(bench: Bench) -> list[tuple[str, str]]:
    """Run number and state of each row of the window's own table."""
    model = bench.find(QTableView, "runs_table").model()
    state = model.columnCount() - 1
    return [(model.index(row, 0).data(), model.index(row, state).data()) for row in range(model.rowCount())]


def show_stored(bench: Bench, dialog: StoredDialog, number: int) -> None:
    """Show the run that is stored by this number: the window's own may be listed above it already, or not yet."""
    dialog.table.selectRow(column(dialog, 0).index(str(number)))
    bench.find(QPushButton, "stored_show").click()


# ---- keeping


def test_that_what_runs_in_the_window_is_stored_as_it_goes(bench: Bench, path: Path) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 30))
    other = start.config.with_level("attention", "sdpa")
    bench.say(
        SegmentStarted(
            run_id=start.run_id,
            config=other,
            segment=Segment(index=1, first_step=30, changes=("attention naive -> sdpa",), started_at="2026"),
        )
    )

    def seen() -> bool:
        with Store(path, read_only=True) as store:
            lines = store.runs().runs
            return bool(lines) and (lines[0].samples, lines[0].segments) == (30, 2)

    bench.until(lambda: path.exists() and seen())
    assert outcomes(path) == ["running"]
    bench.end(start)
    second = bench.start()
    problem = Problem(what="Out of memory", why="batch 4 x 128 does not fit.")
    bench.say(RunEnded(run_id=second.run_id, outcome="failed", problem=problem))
    third = bench.start()
    bench.say(steps(third.run_id, 0, 3))
    window.close()
    assert outcomes(path) == ["stopped", "failed", "stopped"], "closing ends the run that was going"
    with Store(path, read_only=True) as store:
        first, failed, last = (store.load(id) for id in (1, 2, 3))
    ours = window.log.run(start.run_id)
    assert (first.uid, first.config, first.environment) == (ours.uid, ours.config, ours.environment)
    assert [kept.config for kept in first.segments] == [start.config, other]
    np.testing.assert_array_equal(first.columns.column("loss"), ours.columns.column("loss"))
    assert failed.problem == "Out of memory: batch 4 x 128 does not fit."
    assert len(last.columns) == 3


def test_that_a_window_without_a_store_keeps_nothing_and_says_so(bench: Bench, path: Path) -> None:
    window = bench.open("--no-store")
    bench.end(bench.start())
    bench.find(QAction, "open_stored_action").trigger()
    assert "--no-store" in window.messages.text
    assert not window.findChildren(StoredDialog)
    window.close()
    assert not path.exists()


def test_that_a_store_that_cannot_be_used_is_told_in_a_line_and_runs_go_on(bench: Bench, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    window = bench.open()
    bench.until(lambda: window.messages.severity == "warning")
    assert window.messages.text.startswith(f"Not recorded: stored runs at {path}: it is damaged")
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.end(start)
    assert len(window.log.run(start.run_id).columns) == 5
    bench.find(QAction, "open_stored_action").trigger()
    bench.until(lambda: window.messages.severity == "problem")
    assert "it is damaged" in window.messages.text


# ---- after a crash


def test_that_a_run_whose_window_was_killed_is_offered_and_shown(bench: Bench, path: Path) -> None:
    lost = run_of(ended=False)
    keep(path, run_of(), lost, seconds_ago=60)
    window = bench.open()
    bench.until(lambda: "ended without being closed" in window.messages.text)
    assert "+ attention sdpa, 40 steps" in window.messages.text
    button = bench.find(QPushButton, "message_button")
    assert button.text() == "Show it"
    button.click()
    bench.until(lambda: bool(window.log.runs))
    (shown,) = window.log.runs
    assert (shown.uid, shown.outcome, len(shown.columns)) == (lost.uid, "incomplete", 40)
    bench.until(lambda: rows(bench) == [("1.1", "changed"), ("1.2", "incomplete")])
    bench.until(lambda: outcomes(path) == ["completed", "incomplete"])
    window.close()
    window = bench.open()
    asked = threading.Event()
    window.stored.recorder.ask(lambda store: asked.set())
    bench.until(asked.is_set)
    assert "without being closed" not in window.messages.text, "it is offered once"


def test_that_the_offer_can_be_dismissed_for_good(bench: Bench, path: Path) -> None:
    keep(path, run_of(ended=False), run_of(ended=False), seconds_ago=60)
    window = bench.open()
    bench.until(lambda: "2 runs ended without being closed" in window.messages.text)
    assert bench.find(QPushButton, "message_button").text() == "Show them"
    bench.find(QPushButton, "dismiss_button").click()
    assert window.messages.text == ""
    bench.until(lambda: outcomes(path) == ["incomplete"] * 2)
    assert not window.log.runs


def test_that_the_offer_outlasts_what_the_worker_has_to_say(bench: Bench, path: Path) -> None:
    keep(path, run_of(ended=False), seconds_ago=60)
    bench.here = None
    window = bench.open()
    bench.until(lambda: "without being closed" in window.messages.text)
    bench.here = environment(GPU, CPU)
    bench.choose("toggle_attention", "sdpa")
    assert "without being closed" not in window.messages.text
    bench.say(WorkerReady(environment=bench.here))
    assert "without being closed" in window.messages.text


def test_that_a_run_of_a_moment_ago_is_looked_at_again(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_runs, "LOOK_AGAIN_MS", 300)
    now = time.time()
    keep(path, run_of(ended=False))
    window = bench.open()
    looked = threading.Event()
    window.stored.recorder.ask(lambda store: looked.set())
    bench.until(looked.is_set)
    assert "without being closed" not in window.messages.text, "another window may still be at it"
    monkeypatch.setattr(time, "time", lambda: now + 30)
    bench.until(lambda: "without being closed" in window.messages.text)


# ---- the list


def test_that_stored_runs_are_listed_filtered_and_shown_by_keys_alone(bench: Bench, path: Path) -> None:
    fast = run_of(dataclasses.replace(TRAIN, batch=16), step_ms=10.0)
    keep(path, run_of(), fast, run_of(TRAIN.with_level("precision", "bf16")))
    window = bench.open()
    dialog = opened(bench)
    assert column(dialog, 0) == ["3", "2", "1"], "newest first"
    assert column(dialog, 2)[0] == "+ precision bf16 + attention sdpa (2 settings, its last)"
    assert column(dialog, 5) == ["Small CPU"] * 3
    assert column(dialog, 6) == ["40"] * 3
    assert column(dialog, 7) == ["10.2k", "51.2k", "10.2k"]
    assert bench.find(QLabel, "stored_count").text() == "3 of 3 runs"
    box = bench.find(QLineEdit, "stored_filter")
    assert box.hasFocus()
    QTest.keyClicks(box, "SDPA 51.2k")
    assert column(dialog, 0) == ["2"]
    assert bench.find(QLabel, "stored_count").text() == "1 of 3 runs"
    QTest.keyClick(box, Qt.Key.Key_Return)
    bench.until(lambda: bool(window.log.runs))
    assert [run.uid for run in window.log.runs] == [fast.uid]
    box.clear()
    QTest.keyClick(box, Qt.Key.Key_Down)
    assert dialog.table.hasFocus()
    QTest.keyClick(dialog.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert dialog.selected() == [3, 2]
    QTest.keyClick(dialog.table, Qt.Key.Key_Return)
    bench.until(lambda: len(window.log.runs) == 2)
    assert [run.uid for run in window.log.runs].count(fast.uid) == 1, "what is shown already is not shown twice"
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_that_a_shown_run_is_in_the_table_on_the_curves_and_can_be_pinned(bench: Bench, path: Path) -> None:
    keep(path, run_of())
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.end(start)
    dialog = opened(bench)
    show_stored(bench, dialog, 1)
    bench.until(lambda: len(window.log.runs) == 2)
    bench.until(lambda: [number for number, _ in rows(bench)] == ["1.1", "2.1", "2.2"])
    assert "Shown as 2 in the table" in window.messages.text
    window.panels.plots.redraw()
    plot = bench.find(pg.PlotWidget, "throughput_plot")
    drawn = [curve for curve in plot.getPlotItem().listDataItems() if curve.xData is not None and len(curve.xData)]
    assert max(curve.xData[-1] for curve in drawn) == pytest.approx(2.0), "40 steps of 50 ms"
    timeline = window.panels.plots.throughput.plot.annotations.timeline()
    (marker,) = timeline.markers
    assert (marker.time_s, marker.text) == (pytest.approx(1.0), "attention naive → sdpa")
    table = bench.find(QTableView, "runs_table")
    table.selectRow(2)
    bench.find(QAction, "pin_row_b_action").trigger()
    assert window.pins.b == run_of().segments[1].config
    again = bench.start()
    assert again.run_id not in (1, 2), "a new run has a number of its own"
    bench.say(steps(again.run_id, 0, 5))
    bench.end(again)
    dialog.close()


def test_that_a_stored_run_has_its_pause_marked_where_it_was(bench: Bench, path: Path) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.find(QAction, "profile_action").trigger()
    command = bench.worker.commands[-1]
    bench.say(Progress(run_id=command.run_id, activity="profiling"))
    bench.say(RunEnded(run_id=command.run_id, outcome="completed"))
    bench.say(steps(start.run_id, 5, 5))
    bench.end(start)
    window.close()
    window = bench.open()
    bench.choose("workload_combo", "train")
    dialog = opened(bench)
    show_stored(bench, dialog, 1)
    bench.until(lambda: bool(window.log.runs))
    timeline = window.panels.plots.throughput.plot.annotations.timeline()
    bench.until(lambda: bool(timeline.markers))
    (marker,) = timeline.markers
    assert (marker.time_s, marker.text) == (pytest.approx(4 * 0.05), "pause: profile")
    dialog.close()


def test_that_a_stored_failure_is_diagnosed_with_its_ways_out(bench: Bench, path: Path) -> None:
    log = RunLog()
    record = log.begin_run(1, TRAIN)
    log.begin_segment(1, TRAIN, segment())
    log.append(1, made_steps([50.0] * 5))
    ways = WaysOut(flips=(("checkpointing", "all"), ("gone", "on"), ("gelu", "of another version")), batch=2)
    failure = Failure(what="Out of memory", why="batch 4 does not fit", remedy="The largest batch that fits is 2.")
    log.end(1, "failed", "Out of memory: batch 4 does not fit. The largest batch that fits is 2.", ways, failure)
    keep(path, record)
    window = bench.open()
    bench.choose("workload_combo", "train")
    window.show()
    dialog = opened(bench)
    show_stored(bench, dialog, 1)
    panel = window.panels.diagnosis
    bench.until(lambda: bool(panel.findChildren(QLabel, "finding_failed")))
    told = [bench.find(QLabel, f"{part}_failed") for part in ("finding", "why", "cure")]
    assert [label.text() for label in told] == [
        "Out of memory.",
        "Batch 4 does not fit.",
        "The largest batch that fits is 2.",
    ]
    assert not any(label.isHidden() for label in told)
    offered = [b.objectName() for b in panel.findChildren(QPushButton) if b.objectName().startswith("try_")]
    assert offered == ["try_batch", "try_checkpointing"], "what this version does not know cannot be pressed"
    bench.find(QPushButton, "try_batch").click()
    assert bench.config.batch == 2
    dialog.close()


def test_that_a_run_that_is_going_keeps_the_curves(bench: Bench, path: Path) -> None:
    keep(path, run_of())
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    dialog = opened(bench)
    show_stored(bench, dialog, 1)
    bench.until(lambda: len(window.log.runs) == 2)
    bench.say(steps(start.run_id, 5, 5))
    window.panels.plots.redraw()
    plot = bench.find(pg.PlotWidget, "throughput_plot")
    drawn = [curve for curve in plot.getPlotItem().listDataItems() if curve.xData is not None and len(curve.xData)]
    assert max(curve.xData[-1] for curve in drawn) < 0.5
    assert not any(isinstance(command, Reconfigure) for command in bench.worker.commands)
    window.control.stop()
    assert bench.worker.commands[-1] == Stop(run_id=start.run_id), "of the run that is going, not of the shown one"
    bench.end(start)
    dialog.close()


def test_that_a_text_is_shown_again(bench: Bench, path: Path) -> None:
    config = dataclasses.replace(TRAIN, workload="generate", prompt="import os", batch=1)
    keep(path, run_of(config, text=" and sys"))
    bench.open()
    bench.choose("workload_combo", "generate")
    dialog = opened(bench)
    bench.find(QPushButton, "stored_show").click()
    bench.until(lambda: bench.find(QPlainTextEdit, "text_output").toPlainText() == "import os and sys")
    dialog.close()


def test_that_a_run_of_another_machine_is_marked(bench: Bench, path: Path) -> None:
    keep(path, run_of(dataclasses.replace(TRAIN, device="cuda:0")))
    window = bench.open()
    dialog = opened(bench)
    bench.find(QPushButton, "stored_show").click()
    bench.until(lambda: "does not compare" in window.messages.text)
    assert "Measured on Big GPU, 80 GiB" in window.messages.text
    table = bench.find(QTableView, "runs_table").model()
    bench.until(lambda: table.rowCount() == 2)
    assert "on Big GPU, 80 GiB" in table.index(0, 0).data(Qt.ItemDataRole.ToolTipRole)
    dialog.close()


def test_that_deleting_asks_first(bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(path, run_of(), run_of(), run_of())
    bench.open()
    dialog = opened(bench)
    answers = [QMessageBox.StandardButton.Cancel, QMessageBox.StandardButton.Yes]
    asked: list[str] = []

    def question(_parent: object, _title: str, words: str, *_args: object) -> QMessageBox.StandardButton:
        asked.append(words)
        return answers[len(asked) - 1]

    monkeypatch.setattr(QMessageBox, "question", question)
    dialog.table.setFocus()
    dialog.table.selectRow(1)
    QTest.keyClick(dialog.table, Qt.Key.Key_Delete)
    assert "run 2" in asked[0]
    assert outcomes(path) == ["completed"] * 3
    QTest.keyClick(dialog.table, Qt.Key.Key_Delete)
    bench.until(lambda: column(dialog, 0) == ["3", "1"])
    with Store(path, read_only=True) as store:
        assert store.ids() == [1, 3]
    dialog.close()


def test_that_runs_travel_in_a_bundle(
    bench: Bench, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(path, run_of(), run_of())
    bundle = tmp_path / "out.zip"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(bundle), ""))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_args: (str(bundle), ""))
    window = bench.open()
    dialog = opened(bench)
    dialog.table.selectRow(0)
    bench.find(QPushButton, "stored_bundle").click()
    bench.until(lambda: f"Wrote 1 run to {bundle}" in window.messages.text)
    window.close()
    window = bench.open("--store", str(tmp_path / "elsewhere.sqlite"))
    dialog = opened(bench)
    assert bench.find(QLabel, "stored_count").text().startswith("No run is stored yet")
    bench.find(QAction, "import_runs_action").trigger()
    bench.until(lambda: column(dialog, 10) == ["out.zip"])
    dialog.close()


def test_that_the_runs_of_a_csv_from_another_machine_are_taken_in_and_shown(
    bench: Bench, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(dataclasses.replace(TRAIN, device="cuda:0"))
    file = tmp_path / "theirs.csv"
    write_segments(file, [run], toggles=baseline_levels())
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_args: (str(file), ""))
    window = bench.open()
    for _ in range(2):
        bench.find(QAction, "import_runs_action").trigger()
        bench.until(lambda: "theirs.csv" in window.messages.text)
        bench.find(QPushButton, "dismiss_button").click()
    dialog = opened(bench)
    assert column(dialog, 10) == ["theirs.csv"], "what is there already does not come twice"
    assert (column(dialog, 6), column(dialog, 7)) == (["40"], ["10.2k"])
    bench.find(QPushButton, "stored_show").click()
    bench.until(lambda: "no curves" in window.messages.text)
    assert "Measured on Big GPU: its speed does not compare" in window.messages.text
    bench.until(lambda: rows(bench) == [("1.1", "changed"), ("1.2", "completed")])
    dialog.close()


def test_that_a_wrong_csv_is_told_and_changes_nothing(
    bench: Bench, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(path, run_of())
    file = tmp_path / "wrong.csv"
    write_segments(file, [run_of(), dataclasses.replace(run_of(), run_id=2)], toggles=baseline_levels())
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:-1], lines[-1].replace("completed", "done")]))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_args: (str(file), ""))
    window = bench.open()
    bench.find(QAction, "import_runs_action").trigger()
    bench.until(lambda: window.messages.severity == "problem")
    assert "row 5: outcome is 'done'" in window.messages.text
    assert outcomes(path) == ["completed"], "the good rows did not come in either"


def test_that_an_import_that_fails_is_told(bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_args: ("/nowhere/out.zip", ""))
    window = bench.open()
    bench.find(QAction, "import_runs_action").trigger()
    bench.until(lambda: window.messages.severity == "problem")
    assert "/nowhere/out.zip cannot be read" in window.messages.text


# ---- a whole run at once


def test_that_many_steps_at_once_make_the_timeline_that_single_ones_do() -> None:
    samples = [
        *made_steps([5, 5, 5]),
        *(dataclasses.replace(s, phase="warmup") for s in made_steps([5, 5], start_s=0.015, first_step=3)),
        *made_steps([5, 5], start_s=0.025, first_step=5, index=1),
        *made_steps([5], start_s=0.035, first_step=7, index=2),
    ]
    single, whole = Timeline(), Timeline()
    for timeline in (single, whole):
        timeline.name_segment(1, ("batch 4 -> 8",))
        timeline.name_segment(2, ("gelu hf -> torch",))
    for sample in samples:
        single.add(sample)
    columns = SampleColumns()
    whole.add_columns(columns.columns())
    columns.append(samples)
    whole.add_columns(columns.columns())
    assert whole == single
    assert [marker.text for marker in whole.markers] == ["batch 4 → 8", "gelu hf → torch"]
    assert [(band.start_s, band.end_s) for band in whole.bands][:2] == [(0.0, 0.005), (pytest.approx(0.015), 0.025)]
