"""The settings in the window: their limits, undone and redone, safe from the wheel."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLineEdit,
    QPushButton,
    QSpinBox,
)
from window_bench import Bench

from explorer.config import LIMITS
from explorer.messages import Reconfigure
from explorer.models import MODELS


def test_that_settings_can_be_undone_and_redone(bench: Bench) -> None:
    bench.open()
    first = bench.config
    undo, redo = bench.find(QAction, "undo_action"), bench.find(QAction, "redo_action")
    assert not undo.isEnabled()
    bench.choose("toggle_attention", "sdpa")
    bench.find(QSpinBox, "seed_spin").setValue(3)
    last = bench.config
    undo.trigger()
    assert bench.config == dataclasses.replace(last, seed=first.seed)
    assert bench.find(QSpinBox, "seed_spin").value() == first.seed
    undo.trigger()
    assert bench.config == first
    assert not undo.isEnabled()
    redo.trigger()
    redo.trigger()
    assert bench.config == last
    assert not redo.isEnabled()


def test_that_a_held_arrow_key_is_one_step_to_undo(bench: Bench) -> None:
    bench.open()
    first = bench.config
    spin = bench.find(QSpinBox, "batch_spin")
    for _ in range(5):
        spin.stepUp()
    assert bench.config.batch == first.batch + 5
    bench.find(QAction, "undo_action").trigger()
    assert bench.config == first


def test_that_an_undo_which_needs_a_new_run_is_refused_within_one(bench: Bench) -> None:
    window = bench.open()
    bench.find(QSpinBox, "seed_spin").setValue(3)
    start = bench.start()
    bench.find(QAction, "undo_action").trigger()
    assert bench.config.seed == 3
    assert "seed" in window.messages.text
    bench.end(start)


def test_that_spin_boxes_have_the_limits_of_the_configuration(bench: Bench) -> None:
    bench.open()
    for name in ("batch", "seq", "seed"):
        spin = bench.find(QSpinBox, f"{name}_spin")
        assert (spin.minimum(), spin.maximum()) == LIMITS[name]
    assert {bench.find(QComboBox, "model_combo").itemData(i) for i in range(len(MODELS))} == set(MODELS)


def test_that_the_optimizer_is_set_in_numbers_as_people_write_them(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "train")
    line = bench.find(QLineEdit, "lr_edit")
    assert float(line.text()) == 5e-5
    start = bench.start()

    def write(words: str) -> None:
        line.setFocus()
        line.selectAll()
        bench.qtbot.keyClicks(line, words)
        bench.qtbot.keyClick(line, Qt.Key.Key_Return)

    write("3e-4")
    (sent,) = (c for c in bench.worker.commands if isinstance(c, Reconfigure))
    assert sent.config.lr == 0.0003
    for wrong in ("7", "fast", "nan"):
        write(wrong)
        assert "lr is" in window.messages.text
        assert bench.config.lr == 0.0003
        assert float(line.text()) == 0.0003
    assert not bench.find(QLineEdit, "init_scale_edit").isEnabled(), "it is used once, at the start"
    bench.end(start)
    assert bench.find(QLineEdit, "init_scale_edit").isEnabled()
    bench.choose("workload_combo", "generate")
    assert not line.isEnabled()


def test_that_the_wheel_does_not_change_what_the_pointer_passes(bench: Bench) -> None:
    from PySide6.QtCore import QPoint, QPointF
    from PySide6.QtGui import QWheelEvent

    window = bench.open()
    window.activateWindow()
    combo = bench.find(QComboBox, "toggle_attention")
    bench.find(QPushButton, "start_button").setFocus()
    before = bench.config

    def roll() -> None:
        event = QWheelEvent(
            QPointF(5, 5),
            QPointF(5, 5),
            QPoint(),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(combo, event)

    roll()
    assert bench.config == before
    combo.setFocus()
    roll()
    assert bench.config != before
