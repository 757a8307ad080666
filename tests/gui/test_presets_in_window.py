"""Presets above the toggles: set at once, undone at once, the person's own among them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QSettings, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QComboBox, QLineEdit, QListWidget, QPushButton
from window_bench import CPU, GPU, Bench, environment

from explorer.gui.settings import Settings
from explorer.messages import Reconfigure

EVERYTHING = {
    "precision": "bf16",
    "optimizer": "fused",
    "dropout": "off",
    "attention": "causal",
    "gelu": "triton_bias",
    "qkv_gradient": "joined",
    "residual": "bf16",
    "vocab_padding": "128",
    "loss_impl": "fused",
    "compile": "model",
    "cuda_graph": "on",
}


def pick(bench: Bench, words: str) -> None:
    """Choose a preset as a person does, by what the combo box shows."""
    combo = bench.find(QComboBox, "preset_combo")
    index = combo.findText(words)
    assert index >= 0, f"no preset {words!r}"
    combo.setCurrentIndex(index)
    combo.activated.emit(index)


def save_as(bench: Bench, name: str) -> None:
    bench.find(QPushButton, "preset_save").click()
    line = bench.find(QLineEdit, "preset_name")
    line.setText(name)
    bench.qtbot.keyClick(line, Qt.Key.Key_Return)


def test_that_a_preset_sets_its_toggles_as_one_step_to_undo(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    bench.open()
    bench.choose("toggle_checkpointing", "all")
    before = bench.config
    pick(bench, "Everything")
    assert dict(bench.config.levels) == EVERYTHING
    assert bench.config == dataclasses.replace(before, levels=bench.config.levels), "nothing but toggles"
    assert bench.window.messages.severity == "hint", "all of it can run"
    combo = bench.find(QComboBox, "preset_combo")
    assert combo.currentText() == "Everything"
    bench.find(QAction, "undo_action").trigger()
    assert bench.config == before
    assert combo.currentIndex() == -1, "checkpointing alone is no preset"
    bench.find(QAction, "preset_baseline_action").trigger()
    assert (bench.config.levels, combo.currentText()) == ((), "Article baseline")


def test_that_levels_that_cannot_run_here_are_left_out_aloud(bench: Bench) -> None:
    bench.open()
    bench.choose("workload_combo", "train")
    bench.find(QAction, "preset_everything_action").trigger()
    assert bench.config.level("gelu") == "torch"
    assert bench.config.level("compile") is None
    said = bench.window.messages.text
    assert bench.window.messages.severity == "warning"
    assert "GeLU: torch fused instead of Triton, with bias, since Triton kernels need a CUDA device" in said
    assert "torch.compile: off instead of whole model" in said
    assert bench.find(QComboBox, "preset_combo").currentText() == "Everything", "as far as it can run here"


def test_that_nothing_set_is_the_baseline_where_nothing_of_a_tier_can_run(bench: Bench) -> None:
    bench.open()
    bench.choose("workload_combo", "generate")
    bench.find(QAction, "preset_framework_action").trigger()
    assert bench.config.levels == ()
    assert "numbers of 16 bits take a CPU longer" in bench.window.messages.text
    assert bench.find(QComboBox, "preset_combo").currentText() == "Article baseline"


def test_that_a_preset_is_taken_by_a_run_that_goes_on(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    bench.open()
    start = bench.start()
    pick(bench, "Framework tier")
    (change,) = [c for c in bench.worker.commands if isinstance(c, Reconfigure)]
    assert dict(change.config.levels) == {"precision": "bf16", "optimizer": "fused"}
    bench.end(start)


def test_that_ones_own_preset_is_kept_found_by_keys_and_deleted_with_a_way_back(bench: Bench, tmp_path: Path) -> None:
    file = str(tmp_path / "window.ini")
    bench.open("--settings", file)
    bench.choose("workload_combo", "train")
    bench.choose("toggle_attention", "sdpa")
    bench.choose("toggle_checkpointing", "alternate")
    own = bench.config.levels
    save_as(bench, "  small &  <b>slow</b> ")
    name = "small & <b>slow</b>"
    assert bench.find(QComboBox, "preset_combo").currentText() == name
    bench.find(QAction, "preset_baseline_action").trigger()
    bench.window.close()
    assert Settings(Path(file)).presets() == {name: own}

    bench.open("--settings", file)
    bench.find(QAction, "commands_action").trigger()
    line, found = bench.find(QLineEdit, "command_line"), bench.find(QListWidget, "command_list")
    bench.qtbot.keyClicks(line, "slow")
    assert [found.item(i).text() for i in range(found.count())] == [f"{name}  (Ctrl+Shift+5)"]
    bench.qtbot.keyClick(line, Qt.Key.Key_Return)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert bench.config.levels == own
    bench.find(QAction, "delete_preset_action").trigger()
    combo = bench.find(QComboBox, "preset_combo")
    assert combo.findText(name) == -1
    assert not bench.find(QPushButton, "preset_delete").isEnabled()
    assert not bench.find(QAction, "delete_preset_action").isEnabled()
    bench.find(QPushButton, "message_button").click()
    assert (combo.currentText(), bench.config.levels) == (name, own), "brought back"
    assert Settings(Path(file)).presets() == {name: own}


def test_that_a_name_that_is_asked_for_can_be_given_up(bench: Bench) -> None:
    bench.open()
    bench.window.show()
    bench.find(QAction, "save_preset_action").trigger()
    line, combo = bench.find(QLineEdit, "preset_name"), bench.find(QComboBox, "preset_combo")
    assert (line.isVisible(), combo.isVisible()) == (True, False)
    bench.qtbot.keyClick(line, Qt.Key.Key_Return)
    assert line.isVisible(), "a name is needed"
    bench.qtbot.keyClick(line, Qt.Key.Key_Escape)
    assert (line.isVisible(), combo.isVisible()) == (False, True)
    assert combo.findText("") == -1


@pytest.mark.parametrize("stored", ["not json", "[1]", '{"a": {"speed": "high"}}', '{"a": 3}', "3"])
def test_that_damaged_presets_count_as_none(tmp_path: Path, stored: str) -> None:
    file = tmp_path / "window.ini"
    store = QSettings(str(file), QSettings.Format.IniFormat)
    store.setValue("presets", stored)
    store.sync()
    assert Settings(file).presets() == {}
