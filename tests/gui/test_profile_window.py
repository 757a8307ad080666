"""A profile in the window: asked for between runs and beside one, drawn, sorted, saved, copied, and called off."""

from __future__ import annotations

import csv
import dataclasses
import gzip
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QLineEdit, QPushButton, QSpinBox, QTableView
from window_bench import GPU, Bench, environment, steps

from explorer.experiments.command_line import nsys_line
from explorer.experiments.steps import Steps
from explorer.gui import speech
from explorer.gui.language import catalogue
from explorer.messages import Problem, ProfileSteps, Progress, RunEnded, StepsProfiled, Stop, WorkerLost
from explorer.results.kernel_kinds import KINDS, OTHER
from explorer.results.log import Mark
from explorer.results.step_profile import KernelTime, PartTime, StepProfile
from explorer.results.step_profile_words import ONE_THING, adds_up, dominant

PROFILE = StepProfile(
    device="cuda",
    workload="train",
    rounds=2,
    passes=1,
    round_ms=40.0,
    traced_ms=100.0,
    parts=(
        PartTime(name="data", busy_ms=1.0, waiting_ms=3.0, runs=2),
        PartTime(name="forward", busy_ms=20.0, waiting_ms=4.0, runs=60),
        PartTime(name="backward", busy_ms=45.0, waiting_ms=12.0, runs=120),
        PartTime(name="rest of the step", busy_ms=4.0, waiting_ms=11.0, runs=4),
    ),
    kernels=(
        KernelTime(name="nvjet_tst_192x192", part="backward", count=9, total_ms=50.0),
        KernelTime(name="void at::native::vectorized_elementwise_kernel<4>", part="forward", count=170, total_ms=14.0),
        KernelTime(name="flash_fwd_kernel", part="forward", count=24, total_ms=8.0),
    ),
    launches=180,
    longest_gap_ms=5.0,
    longest_gap_part="backward",
)


@pytest.fixture
def desk(bench: Bench) -> Bench:
    bench.here = environment(GPU)
    bench.open()
    bench.choose("workload_combo", "train")
    return bench


def asked(desk: Bench, number: int = 1) -> ProfileSteps:
    """The profile that the window asked for as the ``number``-th, once it has."""

    def all_asked() -> list[ProfileSteps]:
        return [c for c in desk.worker.commands if isinstance(c, ProfileSteps)]

    desk.until(lambda: len(all_asked()) == number)
    return all_asked()[-1]


def answer(desk: Bench, command: ProfileSteps, found: StepProfile | Problem) -> None:
    """The worker does what a real one does for ``command``."""
    if isinstance(found, StepProfile):
        trace, memory = Path(command.folder) / "trace.json", Path(command.folder) / "memory.pickle"
        trace.write_text('{"traceEvents": []}')
        memory.write_bytes(b"kept as it is")
        found = dataclasses.replace(found, trace_file=str(trace), memory_file=str(memory))
    desk.say(
        StepsProfiled(run_id=command.run_id, config=command.config, found=found),
        RunEnded(run_id=command.run_id, outcome="completed"),
    )


def press(desk: Bench, name: str) -> None:
    desk.find(QPushButton, name).click()


def text(desk: Bench, name: str) -> str:
    return desk.find(QLabel, name).text()


def test_that_f8_profiles_the_settings_and_shows_where_the_time_went(desk: Bench) -> None:
    action = desk.find(QAction, "profile_action")
    assert action.shortcut().toString() == "F8"
    assert "Profile first (F8)" in text(desk, "ladder_advice")
    desk.window.intent.change(batch=4)
    action.trigger()
    window = desk.window.profiling.window
    assert window.isVisible()
    assert not window.isModal()
    assert "Where does the time of a step go?" in text(desk, "profile_details")
    command = asked(desk)
    assert (command.config, command.steps, command.memory) == (desk.config, 3, True)
    assert not desk.find(QPushButton, "profile_start").isEnabled()
    assert not desk.find(QPushButton, "start_button").isEnabled(), "the worker is busy"
    desk.say(Progress(run_id=command.run_id, activity="warming up"))
    assert text(desk, "profile_progress") == "warming up…"
    answer(desk, command, PROFILE)
    desk.until(lambda: not desk.window.bridge.going)
    assert text(desk, "profile_sentence") == dominant(PROFILE)
    # Of 100 ms that were profiled 45 ran, and 12 more were waited: the bar's 57%.
    assert "backward: 57% of the profiled time, 45% without its waits" in text(desk, "profile_sentence")
    assert adds_up(PROFILE) in text(desk, "profile_details")
    bars = {bar.name: bar for bar in window.parts.bars}
    assert (bars["backward"].below, bars["backward"].value) == (6.0, 28.5)
    assert bars["backward"].words == "28.5 ms, 57%"
    assert sum(bar.value for bar in bars.values()) == pytest.approx(PROFILE.traced_ms / PROFILE.rounds)
    assert [(bar.name, bar.value) for bar in window.kinds.bars] == [
        ("matrix products", 25.0),
        ("other element-wise", 7.0),
        ("attention", 4.0),
    ]
    table = desk.find(QTableView, "profile_table")
    rows = [[table.model().index(r, c).data() for c in range(7)] for r in range(3)]
    assert rows[0] == ["nvjet_tst_192x192", "matrix products", "25.000", "69.4%", "4", "5,555.6", "backward"]
    table.sortByColumn(4, Qt.SortOrder.AscendingOrder)
    assert [table.model().index(r, 4).data() for r in range(3)] == ["4", "12", "85"], "as numbers, not as words"
    assert desk.find(QPushButton, "start_button").isEnabled()
    window.close()


def test_that_trace_snapshot_table_and_line_can_be_taken_along(
    desk: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.find(QAction, "profile_action").trigger()
    first = asked(desk)
    answer(desk, first, PROFILE)
    targets = iter(("t.json.gz", "m.pickle", "p.csv"))
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / next(targets)), ""))
    for name in ("profile_save_trace", "profile_save_memory", "profile_export"):
        desk.until(lambda name=name: desk.find(QPushButton, name).isEnabled())
        press(desk, name)
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == b'{"traceEvents": []}'
    assert (tmp_path / "m.pickle").read_bytes() == b"kept as it is"
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["busy_ms"]) for row in rows if row["name"] == "backward"] == [22.5]
    press(desk, "profile_copy_nsys")
    assert QGuiApplication.clipboard().text() == nsys_line(desk.config)
    desk.window.intent.change(batch=2)
    assert "--batch 2 " in desk.find(QLineEdit, "profile_nsys").text()
    desk.find(QSpinBox, "profile_steps").setValue(5)
    press(desk, "profile_start")
    second = asked(desk, 2)
    assert second.steps == 5
    assert Path(first.folder).exists(), "the one that is shown can still be saved"
    answer(desk, second, dataclasses.replace(PROFILE, round_ms=30.0))
    desk.until(lambda: not Path(first.folder).exists())
    desk.window.close()
    assert not Path(second.folder).exists()


def test_that_a_run_pauses_for_a_profile_and_is_not_ended_by_its_end(desk: Bench) -> None:
    start = desk.start()
    desk.say(steps(start.run_id, 0, 5))
    desk.find(QAction, "profile_action").trigger()
    command = asked(desk)
    assert command.config == start.config
    assert command.run_id < 0, "it is no run"
    answer(desk, command, PROFILE)
    assert text(desk, "profile_sentence") == dominant(PROFILE)
    assert desk.window.bridge.running == start.config
    press(desk, "profile_start")
    press(desk, "profile_cancel")
    again = asked(desk, 2)
    assert desk.worker.commands[-1] == Stop(run_id=again.run_id), "the run itself goes on"
    desk.say(RunEnded(run_id=again.run_id, outcome="stopped"))
    assert text(desk, "profile_progress") == "Cancelled."
    assert text(desk, "profile_sentence") == dominant(PROFILE), "what was found stays"
    assert not Path(again.folder).exists()
    assert desk.window.bridge.running == start.config
    desk.window.profiling.window.close()
    desk.end(start)


def test_that_the_window_itself_says_that_its_run_pauses_and_marks_the_place(desk: Bench) -> None:
    start = desk.start()
    desk.say(steps(start.run_id, 0, 5))
    plots, status = desk.window.panels.plots, desk.window.panels.status
    desk.find(QAction, "profile_action").trigger()
    command = asked(desk)
    assert status.state.text() == "running", "it has not paused yet"
    for activity in ("loading the model", "profiling"):
        desk.say(Progress(run_id=command.run_id, activity=activity))
        assert status.state.text() == "paused for a profile"
        assert text(desk, "progress_label") == f"Paused for a profile: {activity}…"
    answer(desk, command, PROFILE)
    assert status.state.text() == "running"
    assert text(desk, "progress_label") == ""
    desk.say(steps(start.run_id, 5, 5))
    (marker,) = plots.throughput.plot.annotations.timeline().markers
    assert (marker.time_s, marker.text) == (4 * 0.05, "pause: profile"), "where the last step before it ended"
    assert desk.window.log.run(start.run_id).marks == [Mark(after_step=4, text="pause: profile")]
    press(desk, "profile_start")
    again = asked(desk, 2)
    desk.say(Progress(run_id=again.run_id, activity="profiling"))
    desk.end(start)
    assert status.state.text() == "worker ready"
    desk.window.profiling.window.close()
    desk.say(RunEnded(run_id=again.run_id, outcome="stopped"))


def test_that_a_profile_that_outlives_its_run_is_shown_beside_an_experiment(desk: Bench) -> None:
    def waiting() -> Steps[None]:
        while True:
            yield ()

    start = desk.start()
    desk.find(QAction, "profile_action").trigger()
    command = asked(desk)
    desk.end(start)
    desk.window.bridge.conduct(waiting())
    answer(desk, command, PROFILE)
    assert text(desk, "profile_sentence") == dominant(PROFILE)
    assert desk.window.bridge.experimenting
    desk.window.profiling.window.close()


def test_that_a_profile_of_a_worker_that_is_replaced_is_told_to_be_lost(desk: Bench) -> None:
    start = desk.start()
    desk.find(QAction, "profile_action").trigger()
    asked(desk)
    problem = Problem(what="The device failed", why="an illegal memory access", spent=True)
    desk.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    desk.until(lambda: len(desk.workers) == 2)
    assert text(desk, "profile_progress") == "Not profiled: the worker has ended."
    desk.window.profiling.window.close()


def test_that_what_went_wrong_is_told(desk: Bench) -> None:
    desk.find(QAction, "profile_action").trigger()
    answer(desk, asked(desk), Problem(what="Not profiled", why="there is too little memory"))
    desk.until(lambda: text(desk, "profile_progress") == "Not profiled: there is too little memory.")
    assert not desk.find(QPushButton, "profile_save_trace").isEnabled()
    start = desk.start()
    press(desk, "profile_start")
    asked(desk, 2)
    desk.worker.say(WorkerLost(exit_code=-9, last_words="gone"))
    desk.until(lambda: desk.window.bridge.state == "absent")
    assert text(desk, "profile_progress") == "Not profiled: the worker has ended."
    assert desk.find(QPushButton, "profile_start").isEnabled(), "a new worker serves the next one"
    desk.window.profiling.window.close()
    del start


def test_that_settings_that_cannot_run_are_not_profiled(desk: Bench) -> None:
    desk.window.intent.replace(desk.config.with_level("attention", "flash"))  # which needs a 16-bit format
    desk.find(QAction, "profile_action").trigger()
    assert not any(isinstance(c, ProfileSteps) for c in desk.worker.commands)
    button = desk.find(QPushButton, "profile_start")
    assert not button.isEnabled()
    assert "Attention" in button.toolTip()
    desk.window.profiling.window.close()


def test_that_a_profile_is_told_in_chinese_too(
    desk: Bench, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "missing_font", lambda wanted: None)
    chinese = catalogue("zh_CN")
    said: list[str] = []

    def listen(words: str, **values: object) -> str:
        said.append(words)
        return words.format(**values)

    idle = dataclasses.replace(PROFILE, round_ms=100.0)
    for profile in (
        PROFILE,
        idle,
        dataclasses.replace(idle, device="cpu"),
        dataclasses.replace(PROFILE, replayed=True),
    ):
        dominant(profile, listen)
        adds_up(dataclasses.replace(profile, workload="generate"), listen)
        adds_up(profile, listen)
    names = ("data", "forward", "backward", "clip", "optimizer", "reading the loss", "replay")
    names += ("prefill", "decode", "sampling", "rest of the step", *KINDS, OTHER, ONE_THING)
    missing = {words for words in (*said, *names) if words not in chinese}
    assert not missing
    assert len(set(said)) > 8
    desk.find(QAction, "profile_action").trigger()
    answer(desk, asked(desk), PROFILE)
    desk.window.set_language("zh_CN")
    assert desk.find(QPushButton, "profile_save_trace").text() == chinese["Save Chrome trace…"]
    assert desk.window.profiling.window.parts.bars[1].name == chinese["forward"]
    assert text(desk, "profile_sentence").startswith("运行最久的是反向")
    desk.window.set_language("en")
    desk.window.profiling.window.close()
