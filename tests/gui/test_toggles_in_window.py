"""The toggles in the window: what is greyed and why, what conflicts, what explains itself."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QStandardItemModel
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLabel,
    QPushButton,
    QSpinBox,
    QWidget,
)
from window_bench import CPU, GPU, Bench, environment

from explorer.messages import Reconfigure
from explorer.optimizations.registry import OPTIMIZATIONS


def test_that_levels_which_cannot_run_here_are_greyed_with_their_reason(bench: Bench) -> None:
    bench.open()
    seen = 0
    for optimization in OPTIMIZATIONS:
        combo = bench.find(QComboBox, f"toggle_{optimization.name}")
        model = combo.model()
        assert isinstance(model, QStandardItemModel)
        assert [combo.itemData(i) for i in range(combo.count())] == list(optimization.level_ids())
        for row, level in enumerate(optimization.level_ids()):
            reason = optimization.unavailable(level, CPU)
            assert model.item(row).isEnabled() == (reason is None)
            if reason is not None:
                seen += 1
                assert model.item(row).toolTip() == reason
                assert combo.itemData(row, Qt.ItemDataRole.AccessibleDescriptionRole) == reason
    assert seen >= 3, "on a CPU tf32, flash and the Triton kernel at least cannot run"


def test_that_a_gpu_frees_what_a_cpu_greys(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    bench.open()
    combo = bench.find(QComboBox, "toggle_gelu")
    row = combo.findData("triton")
    assert combo.model().item(row).isEnabled()
    bench.choose("device_combo", "cpu")
    assert not combo.model().item(row).isEnabled()


def test_that_a_conflict_is_told_in_words_and_resolved_by_its_button(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    fix = bench.find(QPushButton, "toggle_attention_fix")
    line = bench.find(QLabel, "toggle_attention_line")
    assert not fix.isVisible()
    start = bench.start()
    bench.choose("toggle_attention", "flash")
    assert fix.text() == "Set precision to bf16"
    assert fix.isVisible()
    assert "precision is fp32" in line.toolTip()
    assert "precision is fp32" in window.messages.text
    assert not any(isinstance(c, Reconfigure) for c in bench.worker.commands), "the run goes on as it was"
    fix.click()
    (sent,) = (c for c in bench.worker.commands if isinstance(c, Reconfigure))
    assert sent.config.levels == (("attention", "flash"), ("precision", "bf16"))
    assert not fix.isVisible()
    assert window.messages.text == ""
    bench.end(start)


def test_that_start_is_held_back_while_a_conflict_stands(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    bench.choose("toggle_attention", "flash")
    window.control.start()
    assert not window.bridge.going
    assert "precision is fp32" in window.messages.text


def test_that_toggles_of_the_other_workload_are_greyed(bench: Bench) -> None:
    bench.open()
    bench.choose("workload_combo", "generate")
    for optimization in OPTIMIZATIONS:
        combo = bench.find(QComboBox, f"toggle_{optimization.name}")
        assert combo.isEnabled() == ("generate" in optimization.workloads)
        if not combo.isEnabled():
            assert combo.accessibleDescription() == "Plays a part in training only."
    assert not bench.find(QSpinBox, "seq_spin").isEnabled()


def test_that_every_toggle_explains_itself(bench: Bench) -> None:
    bench.open()
    for optimization in OPTIMIZATIONS:
        tip = bench.find(QComboBox, f"toggle_{optimization.name}").toolTip()
        for title in ("Costs", "Expect", "Source"):
            assert title in tip


def test_that_the_toggle_with_the_focus_shows_its_code_for_copying(bench: Bench) -> None:
    window = bench.open()
    for optimization in sorted(OPTIMIZATIONS, key=lambda o: "train" not in o.workloads):
        bench.choose("workload_combo", optimization.workloads[0])  # in the other one it may be greyed
        bench.find(QComboBox, f"toggle_{optimization.name}").setFocus()
        bench.find(QPushButton, "copy_code_button").click()
        assert QApplication.clipboard().text() == optimization.code
        assert optimization.code.splitlines()[0] in bench.find(QWidget, "toggle_details").toPlainText()
    assert window.isVisible()


def test_that_all_toggles_are_put_back_at_once_and_that_can_be_undone(bench: Bench) -> None:
    bench.open()
    bench.choose("toggle_attention", "sdpa")
    bench.choose("toggle_checkpointing", "all")
    optimized = bench.config
    bench.find(QAction, "preset_baseline_action").trigger()
    assert bench.config == dataclasses.replace(optimized, levels=())
    bench.find(QAction, "undo_action").trigger()
    assert bench.config == optimized
