"""File > Export the model: what the window asks of the worker, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFileDialog, QPushButton
from window_bench import Bench

from explorer.messages import Export, Exported, Problem, Progress, RunEnded, Stop


@pytest.fixture
def asked(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A window whose settings name mini's own weights, and a person who names a file."""
    target = str(tmp_path / "mini.pt2")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (target, ""))
    bench.open()
    bench.choose("workload_combo", "generate")
    return bench


def exported(bench: Bench) -> Export:
    """Ask for it, and return what came to the worker."""
    bench.find(QAction, "export_model_action").trigger()
    bench.until(lambda: bool(bench.worker.commands))
    command = bench.worker.commands[-1]
    assert isinstance(command, Export)
    return command


def test_that_the_model_of_the_settings_is_exported_with_what_is_done_told_on_the_way(
    asked: Bench, tmp_path: Path
) -> None:
    messages = asked.window.messages
    command = exported(asked)
    assert (command.config.model, command.config.weights) == ("mini", "bundled")
    assert command.target == str(tmp_path / "mini.pt2")
    asked.window.intent.change(model="gpt2", weights="pretrained")
    asked.say(Progress(run_id=command.run_id, activity="tracing the model"))
    assert messages.text == "Exporting mini: tracing the model…"
    asked.say(
        Exported(run_id=command.run_id, target=command.target, largest_error=2e-6, size_bytes=28 * 2**20),
        RunEnded(run_id=command.run_id, outcome="completed"),
    )
    assert messages.text == f"Exported to {command.target} (28.0 MiB): its logits are within 2.0e-06 of the model's."
    assert not asked.window.bridge.going


def test_that_an_export_can_be_cancelled_and_says_what_went_wrong(asked: Bench) -> None:
    messages = asked.window.messages
    command = exported(asked)
    asked.find(QPushButton, "message_button").click()
    asked.until(lambda: asked.worker.commands[-1] == Stop(run_id=command.run_id))
    asked.say(RunEnded(run_id=command.run_id, outcome="stopped"))
    assert "cancelled" in messages.text
    command = exported(asked)
    problem = Problem(what="Not exported", why="ONNX needs onnx, not installed here", bad_request=True)
    asked.say(RunEnded(run_id=command.run_id, outcome="failed", problem=problem))
    assert "ONNX needs onnx" in messages.text


def test_that_a_worker_which_does_not_hear_in_time_makes_room(asked: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.experiments.export_model.INTERRUPTED_WITHIN_S", 0.0)
    exported(asked)
    asked.find(QPushButton, "message_button").click()
    asked.until(lambda: len(asked.workers) == 2)
    assert not asked.workers[0].alive
    asked.until(lambda: not asked.window.bridge.going)
    assert "cancelled" in asked.window.messages.text


def test_that_neither_a_model_in_training_nor_random_weights_are_exported(asked: Bench) -> None:
    messages, action = asked.window.messages, asked.find(QAction, "export_model_action")
    start = asked.start()
    action.trigger()
    assert "Stop the run first" in messages.text
    asked.end(start)
    asked.window.intent.change(weights="random")
    action.trigger()
    assert "random weights" in messages.text
    assert not [command for command in asked.worker.commands if isinstance(command, Export)]
