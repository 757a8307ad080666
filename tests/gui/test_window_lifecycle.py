"""From opening to closing: the worker's comings and goings, what is remembered, what is written to disk."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray, QSettings
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QComboBox, QDockWidget, QFileDialog, QPushButton
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig
from explorer.experiments import stall
from explorer.experiments.script import script
from explorer.gui.settings import Settings, default_config
from explorer.messages import Note, Problem, RunEnded, Start, Stop, WorkerLost, WorkerReady


def answer(patch: pytest.MonkeyPatch, path: Path | str) -> None:
    """Let the person answer the next file dialog with ``path``; an empty one is Cancel."""
    patch.setattr(QFileDialog, "getSaveFileName", lambda *_args, **_kwargs: (str(path), "CSV (*.csv)"))


# ---- the worker


def test_that_start_before_the_worker_is_ready_waits_for_it(bench: Bench) -> None:
    bench.here = None
    window = bench.open()
    window.control.start()
    assert bench.worker.commands == []
    assert window.bridge.going
    bench.say(WorkerReady(environment=environment(CPU)))
    (sent,) = bench.worker.commands
    assert isinstance(sent, Start)
    assert sent.config == bench.config
    bench.end(sent)


def test_that_a_start_that_still_waits_can_be_stopped_and_changed(bench: Bench) -> None:
    bench.here = None
    window = bench.open()
    window.control.start()
    window.control.stop()
    assert not window.bridge.going
    assert [run.outcome for run in window.log.runs] == ["stopped"]
    window.control.start()
    bench.choose("toggle_attention", "sdpa")
    bench.say(WorkerReady(environment=environment(CPU)))
    (sent,) = bench.worker.commands
    assert isinstance(sent, Start)
    assert sent.config.level("attention") == "sdpa"
    bench.end(sent)


def test_that_a_lost_worker_ends_its_run_says_why_and_is_replaced_at_the_next_start(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.say(WorkerLost(exit_code=-11, last_words="…\nSegmentation fault in libcuda"))
    assert not window.bridge.going
    assert window.log.run(start.run_id).outcome == "failed"
    assert len(window.log.run(start.run_id).columns) == 5, "what was measured stays"
    assert "on SIGSEGV" in window.messages.text
    assert "Segmentation fault in libcuda" in window.messages.text
    assert len(bench.workers) == 1
    window.control.start()
    bench.until(lambda: len(bench.workers) == 2 and bool(bench.worker.commands))
    again = bench.worker.commands[0]
    assert isinstance(again, Start)
    assert again.run_id != start.run_id
    bench.end(again)


def test_that_a_stop_which_takes_too_long_offers_to_end_the_worker(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    window.control.stop()
    assert bench.worker.commands[-1] == Stop(run_id=start.run_id)
    button = bench.find(QPushButton, "message_button")
    assert not button.isVisible()
    bench.until(button.isVisible)
    assert button.text() == "End worker"
    assert "longer than 2 s" in window.messages.text
    first = bench.worker
    button.click()
    assert not first.alive
    assert not window.bridge.going
    assert window.log.run(start.run_id).outcome == "stopped"
    assert len(window.log.run(start.run_id).columns) == 5
    assert len(bench.workers) == 2, "a new one serves the next run"
    bench.until(lambda: window.bridge.state == "ready")
    bench.end(bench.start())


def test_that_a_stop_in_time_offers_nothing(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    window.control.stop()
    bench.end(start)
    assert not window.bridge._patience.isActive()
    assert window.messages.severity == "hint"


def test_that_a_run_stopped_before_its_first_step_teaches_again(bench: Bench) -> None:
    window = bench.open()
    plots = window.panels.plots
    before = [pane.plot.words() for pane in plots._panes]
    start = bench.start()
    assert plots.throughput.plot.words() != before[0]
    bench.end(start)
    assert window.messages.text.startswith("Stopped before the first step. Press Start (F5)")
    assert [pane.plot.words() for pane in plots._panes] == before


def test_that_a_worker_in_the_window_process_is_not_offered_to_be_ended(bench: Bench) -> None:
    window = bench.open("--in-process")
    start = bench.start()
    window.control.stop()
    bench.until(lambda: "cannot be ended alone" in window.messages.text)
    assert not bench.find(QPushButton, "message_button").isVisible()
    bench.end(start)


def test_that_what_disturbs_the_machine_is_shown_and_kept_without_stopping_anything(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    others = "others use this GPU: python (pid 7, 3,072 MiB)"
    slept = "the machine slept for 312 s"
    bench.say(Note(run_id=start.run_id, text=others))
    assert window.messages.text == others
    assert window.messages.severity == "warning"
    bench.say(Note(run_id=start.run_id, text=slept), Note(run_id=start.run_id, text=others))
    assert window.messages.text == f"{others} {slept}"
    assert window.log.run(start.run_id).notes == [others, slept, others]
    assert window.bridge.going
    bench.end(start)
    again = bench.start()
    assert others not in window.messages.text
    bench.end(again)


def test_that_a_worker_which_can_serve_no_more_is_replaced_at_once(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    first = bench.worker
    problem = Problem(what="The device failed", why="an illegal access", spent=True)
    first.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    bench.until(lambda: len(bench.workers) == 2 and window.bridge.state == "ready")
    assert not first.alive
    assert "an illegal access" in window.messages.text
    bench.end(bench.start())


def test_that_a_run_without_steps_is_told_and_its_worker_offered_to_be_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "LEAST_S", 0.2)
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    button = bench.find(QPushButton, "message_button")
    bench.until(button.isVisible)
    assert "no step for" in window.messages.text
    assert button.text() == "End worker"
    assert "no step for" in window.log.run(start.run_id).notes[0]
    bench.say(steps(start.run_id, 5, 1))
    assert "no step for" not in window.messages.text, "it came after all"
    bench.end(start)


def test_that_a_failed_run_shows_its_cause_and_its_remedy(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    problem = Problem(what="Out of memory", why="batch 4 x 128 does not fit.", remedy="Try batch 2.", detail="Trace")
    bench.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    assert window.messages.text == "Out of memory: batch 4 x 128 does not fit. Try batch 2."
    assert window.messages.severity == "problem"
    assert bench.find(QPushButton, "start_button").isEnabled()


def test_that_a_download_happens_only_when_asked_for(bench: Bench) -> None:
    window = bench.open()
    window.intent.change(model="gpt2", weights="pretrained")
    window.control.start()
    start = bench.worker.commands[-1]
    assert isinstance(start, Start)
    assert not start.download
    problem = Problem(what="No weights", why="gpt2 is not in the cache.", bad_request=True)
    bench.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    button = bench.find(QPushButton, "message_button")
    assert button.text() == "Download and start"
    button.click()
    again = bench.worker.commands[-1]
    assert isinstance(again, Start)
    assert again.download
    assert again.config == start.config
    bench.end(again)


def test_that_closing_the_window_ends_the_worker(bench: Bench) -> None:
    window = bench.open()
    bench.start()
    window.close()
    assert not bench.worker.alive


# ---- defaults and what is remembered


@pytest.mark.parametrize(
    ("devices", "model", "batch", "seq"), [((GPU, CPU), "gpt2", 8, 1024), ((CPU,), "mini", 4, 128)]
)
def test_that_the_first_defaults_fit_the_machine(
    bench: Bench, devices: tuple, model: str, batch: int, seq: int
) -> None:
    bench.here = environment(*devices)
    bench.open()
    assert (bench.config.model, bench.config.batch, bench.config.seq) == (model, batch, seq)
    assert bench.find(QComboBox, "model_combo").currentText() == model


def test_that_a_setting_made_before_the_devices_are_known_stays(bench: Bench) -> None:
    bench.here = None
    bench.open()
    bench.choose("toggle_attention", "sdpa")
    wanted = bench.config
    bench.say(WorkerReady(environment=environment(GPU, CPU)))
    assert bench.config == wanted


def test_that_settings_theme_and_docks_are_remembered(bench: Bench, tmp_path: Path) -> None:
    file = str(tmp_path / "remembered.ini")
    window = bench.open("--settings", file)
    bench.choose("toggle_attention", "sdpa")
    bench.choose("device_combo", "cpu")
    bench.find(QAction, "theme_dark_action").trigger()
    bench.find(QDockWidget, "text_dock").close()
    wanted = bench.config
    dark = window.palette().window().color()
    window.close()
    window = bench.open("--settings", file)
    assert bench.config == wanted
    assert bench.find(QComboBox, "device_combo").currentData() == "cpu"
    assert bench.find(QAction, "theme_dark_action").isChecked()
    assert window.palette().window().color() == dark
    assert not bench.find(QDockWidget, "text_dock").isVisible()
    bench.find(QAction, "reset_layout_action").trigger()
    assert bench.find(QDockWidget, "text_dock").isVisible()
    bench.find(QAction, "theme_light_action").trigger()
    assert window.palette().window().color() != dark


@pytest.mark.parametrize(
    "stored",
    [
        "not json",
        "[1, 2]",
        json.dumps({"batch": -5}),
        json.dumps({"colour": "red"}),
        json.dumps({"levels": {"no_such_toggle": "on"}}),
        json.dumps({"levels": {"precision": "fp7"}}),
        json.dumps({"model": 5}),
        json.dumps({"prompt": None}),
    ],
)
def test_that_a_damaged_configuration_is_none(tmp_path: Path, stored: str) -> None:
    file = tmp_path / "damaged.ini"
    settings = QSettings(str(file), QSettings.Format.IniFormat)
    settings.setValue("config", stored)
    settings.sync()
    assert Settings(file).config() is None


def test_that_damaged_settings_give_the_defaults(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "damaged.ini"
    settings = QSettings(str(file), QSettings.Format.IniFormat)
    settings.setValue("config", "not json")
    settings.setValue("theme", "mauve")
    settings.setValue("geometry", QByteArray(b"nonsense"))
    settings.setValue("docks", "nonsense")
    settings.sync()
    bench.open("--settings", str(file))
    assert bench.config == default_config(cuda=False)


def test_that_a_remembered_configuration_is_read_back_whole(tmp_path: Path) -> None:
    config = RunConfig(
        workload="generate",
        model="/a folder/é",
        prompt='He said "=1+1",\n\tthen left; 你好',
        temperature=0.1 + 0.2,
        levels=(("attention", "sdpa"), ("precision", "bf16")),
    )
    Settings(tmp_path / "s.ini").remember_config(config)
    assert Settings(tmp_path / "s.ini").config() == config


def test_that_a_remembered_device_which_is_gone_becomes_auto_aloud(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "s.ini"
    wanted = RunConfig(model="mini", batch=2, seq=64, device="cuda:3")
    settings = Settings(file)
    settings.remember_config(wanted)
    settings.save()
    window = bench.open("--settings", str(file))
    assert bench.config == dataclasses.replace(wanted, device="auto")
    assert "cuda:3" in window.messages.text
    assert bench.find(QComboBox, "device_combo").currentData() == "auto"


# ---- export


def test_that_runs_and_steps_are_exported(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 30))
    bench.end(start)
    answer(monkeypatch, tmp_path / "runs.csv")
    bench.find(QAction, "export_csv_action").trigger()
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["model"] == "mini"
    assert row["attention"] == "naive"
    assert float(row["step_ms_median"]) == 50.0
    assert float(row["tokens_per_s_median"]) == 2000.0
    assert str(tmp_path / "runs.csv") in window.messages.text
    answer(monkeypatch, tmp_path / "steps.csv")
    bench.find(QAction, "export_steps_action").trigger()
    with (tmp_path / "steps.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(30))


def test_that_an_export_that_fails_is_told_and_loses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 30))
    bench.end(start)
    answer(monkeypatch, tmp_path / "no such folder" / "runs.csv")
    bench.find(QAction, "export_csv_action").trigger()
    assert window.messages.text.startswith("Not exported:")
    assert "no such folder" in window.messages.text
    assert window.messages.severity == "problem"
    assert len(window.log.run(start.run_id).columns) == 30


def test_that_an_export_with_nothing_to_write_asks_for_no_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    window = bench.open()

    def never(*_args: object) -> tuple[str, str]:
        raise AssertionError("no file should be asked for")

    monkeypatch.setattr(QFileDialog, "getSaveFileName", never)
    bench.find(QAction, "export_csv_action").trigger()
    assert "nothing to export" in window.messages.text


def test_that_a_cancelled_export_writes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bench.open()
    bench.end(bench.start())
    answer(monkeypatch, "")
    bench.find(QAction, "export_csv_action").trigger()
    assert list(tmp_path.rglob("*.csv")) == []


def test_that_the_settings_are_exported_as_a_script(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = bench.open()
    bench.choose("toggle_attention", "sdpa")
    answer(monkeypatch, tmp_path / "train.py")
    bench.find(QAction, "export_script_action").trigger()
    assert (tmp_path / "train.py").read_text() == script(bench.config)
    assert "Exported the script" in window.messages.text
