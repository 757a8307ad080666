"""The main job in the window, with the real worker and a model of two layers: one flow a workload."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyqtgraph as pg
import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QTableView,
)
from pytestqt.qtbot import QtBot

from explorer.gui.app import create
from explorer.gui.main_window import MainWindow
from explorer.gui.verdict_words import headline
from explorer.results.ring import PHASE_CODES

WITHIN_MS = 90_000
"""The worker imports torch and transformers first; on two busy cores that has been seen to take 20 s."""


class Hand:
    """What a person's hand does, by the names of the controls."""

    def __init__(self, window: MainWindow, qtbot: QtBot) -> None:
        self.window = window
        self._qtbot = qtbot

    def find(self, kind: type, name: str) -> Any:
        return self.window.findChild(kind, name)

    def choose(self, name: str, data: str) -> None:
        combo = self.find(QComboBox, name)
        combo.setCurrentIndex(combo.findData(data))

    def press(self, name: str) -> None:
        self.find(QPushButton, name).click()

    def until(self, fact: Callable[[], bool]) -> None:
        self._qtbot.waitUntil(lambda: fact() or self._failed(), timeout=WITHIN_MS)

    def _failed(self) -> bool:
        runs = self.window.log.runs
        assert not runs or runs[-1].outcome != "failed", runs[-1].problem
        return False


def test_that_training_in_the_window_draws_toggles_live_and_exports(
    qtbot: QtBot, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, window = create(["--settings", str(tmp_path / "settings.ini")])
    qtbot.addWidget(window)
    hand = Hand(window, qtbot)
    hand.choose("workload_combo", "train")
    hand.find(QComboBox, "model_combo").setCurrentText(str(tiny_model))
    hand.choose("device_combo", "auto")
    hand.find(QSpinBox, "batch_spin").setValue(2)
    hand.find(QSpinBox, "seq_spin").setValue(16)
    hand.press("start_button")
    log = window.log
    hand.until(lambda: len(log.run(1).columns) >= 15)
    hand.choose("toggle_attention", "sdpa")
    hand.until(lambda: len(log.run(1).segments) == 2)
    hand.find(QSpinBox, "batch_spin").setValue(3)
    hand.until(lambda: np.count_nonzero(log.run(1).columns.column("segment") == 2) >= 5)
    hand.press("stop_button")
    hand.until(lambda: not window.bridge.going)

    run = log.run(1)
    assert run.outcome == "stopped"
    assert [s.config.level("attention") for s in run.segments] == [None, "sdpa", "sdpa"]
    assert [s.config.batch for s in run.segments] == [2, 2, 3]
    assert run.segments[1].segment.changes == ("attention naive -> sdpa",)
    tokens, segments = run.columns.column("tokens"), run.columns.column("segment")
    assert set(tokens[segments == 1]) == {2 * 16}
    assert set(tokens[segments == 2]) == {3 * 16}
    assert list(run.columns.column("step")) == list(range(len(run.columns))), "no step is lost or told twice"
    assert np.isfinite(run.columns.column("loss")).all()

    for name in ("throughput_plot", "memory_plot"):
        curves = [c for c in hand.find(pg.PlotWidget, name).getPlotItem().listDataItems() if c.xData is not None]
        assert any(len(c.xData) > 0 for c in curves), f"{name} is empty"
    hand.until(lambda: hand.find(QTableView, "runs_table").model().rowCount() == 3)

    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(tmp_path / "out.csv"), ""))
    hand.find(QAction, "export_csv_action").trigger()
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["attention"] for row in rows] == ["naive", "sdpa", "sdpa"]
    assert [row["batch"] for row in rows] == ["2", "2", "3"]
    assert float(rows[0]["loss_first"]) == run.columns.column("loss")[0]
    window.close()


def test_that_generation_in_the_window_streams_its_text(qtbot: QtBot, tiny_model: Path, tmp_path: Path) -> None:
    _, window = create(["--in-process", "--settings", str(tmp_path / "settings.ini")])
    qtbot.addWidget(window)
    hand = Hand(window, qtbot)
    hand.choose("workload_combo", "generate")
    hand.find(QComboBox, "model_combo").setCurrentText(str(tiny_model))
    hand.find(QSpinBox, "batch_spin").setValue(1)
    hand.find(QPlainTextEdit, "prompt_edit").setPlainText("import os")
    hand.until(lambda: window.intent.config.prompt == "import os")
    window.intent.change(max_new_tokens=12, temperature=0.0)
    hand.press("start_button")
    hand.until(lambda: bool(window.log.runs) and not window.bridge.going)
    run = window.log.run(1)
    assert run.outcome == "completed", run.problem
    assert len(run.columns) == 12, "one sample a token"
    assert run.text
    assert hand.find(QPlainTextEdit, "text_output").toPlainText() == "import os" + run.text
    window.close()


@pytest.mark.usefixtures("short_warm_up")
def test_that_a_comparison_in_the_window_comes_to_a_verdict(qtbot: QtBot, tiny_model: Path, tmp_path: Path) -> None:
    _, window = create(["--in-process", "--settings", str(tmp_path / "settings.ini")])
    qtbot.addWidget(window)
    hand = Hand(window, qtbot)
    hand.choose("workload_combo", "train")
    window.comparing.block_s = 0.02
    hand.find(QComboBox, "model_combo").setCurrentText(str(tiny_model))
    hand.choose("device_combo", "auto")
    hand.find(QSpinBox, "batch_spin").setValue(1)
    hand.find(QSpinBox, "seq_spin").setValue(8)
    hand.find(QAction, "pin_a_action").trigger()
    hand.find(QSpinBox, "batch_spin").setValue(2)
    hand.find(QCheckBox, "checks_check").setChecked(False)
    hand.find(QSpinBox, "budget_spin").setValue(2)
    hand.press("compare_button")
    hand.until(lambda: len(window.log.runs) == 2 and not window.bridge.going)
    record = window.comparing.record
    assert record is not None
    result = record.result()
    assert result is not None
    assert hand.find(QLabel, "verdict_label").text() == headline(result)
    assert [run.segments[0].config.batch for run in window.log.runs] == [1, 2]
    for run, of_arm in zip(window.log.runs, (record.blocks.of_arm(0), record.blocks.of_arm(1)), strict=True):
        block, step_ms = run.columns.column("block"), run.columns.column("step_ms")
        steady = run.columns.column("phase") == PHASE_CODES["steady"]
        for pair, kept in of_arm.items():
            assert kept.step_ms == np.median(step_ms[(block == pair) & steady]), "a block is what its steps are"
    window.close()
