"""The window's own behaviour: what a control asks for, what it shows, what it forbids."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pyqtgraph as pg
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QListWidget,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QTableView,
    QTextBrowser,
    QWidget,
)
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig, Workload
from explorer.gui.run_control import FIXED_IN_RUN
from explorer.messages import Parked, Problem, Reconfigure, Refused, Stop
from explorer.optimizations.registry import OPTIMIZATIONS


def test_that_every_widget_named_for_others_exists_once(bench: Bench) -> None:
    bench.open()
    named = [
        *((QComboBox, name) for name in ("workload_combo", "model_combo", "device_combo")),
        *((QComboBox, f"toggle_{o.name}") for o in OPTIMIZATIONS),
        (QSpinBox, "batch_spin"),
        (QSpinBox, "seq_spin"),
        (QPushButton, "start_button"),
        (QPushButton, "stop_button"),
        (pg.PlotWidget, "throughput_plot"),
        (pg.PlotWidget, "memory_plot"),
        (QPlainTextEdit, "prompt_edit"),
        (QPlainTextEdit, "text_output"),
        (QTableView, "runs_table"),
        (QAction, "export_csv_action"),
    ]
    for kind, name in named:
        bench.find(kind, name)


def test_that_start_sends_what_the_controls_show(bench: Bench) -> None:
    bench.open()
    bench.choose("workload_combo", "train")
    bench.choose("toggle_attention", "sdpa")
    bench.choose("toggle_checkpointing", "all")
    bench.find(QComboBox, "model_combo").setCurrentText("gpt2-medium")
    bench.find(QSpinBox, "batch_spin").setValue(3)
    bench.find(QSpinBox, "seq_spin").setValue(40)
    bench.find(QSpinBox, "seed_spin").setValue(11)
    bench.find(QPushButton, "start_button").click()
    start = bench.worker.commands[-1]
    assert start.config == RunConfig(
        model="gpt2-medium", batch=3, seq=40, seed=11, levels=(("attention", "sdpa"), ("checkpointing", "all"))
    )
    assert start.steps is None
    assert not start.download


def test_that_controls_are_redrawn_from_the_configuration_without_echo(bench: Bench) -> None:
    window = bench.open()
    heard: list[RunConfig] = []
    window.intent.changed.connect(lambda new, _old: heard.append(new))
    wanted = RunConfig(
        workload="generate", model="mini", batch=2, seq=64, seed=5, device="cpu", levels=(("attention", "sdpa"),)
    )
    window.intent.replace(wanted)
    assert heard == [wanted]
    assert bench.find(QComboBox, "workload_combo").currentData() == "generate"
    assert bench.find(QComboBox, "model_combo").currentText() == "mini"
    assert bench.find(QComboBox, "device_combo").currentData() == "cpu"
    assert bench.find(QComboBox, "toggle_attention").currentData() == "sdpa"
    assert bench.find(QSpinBox, "batch_spin").value() == 2
    assert bench.find(QSpinBox, "seed_spin").value() == 5


def test_that_toggles_batch_and_sequence_reach_a_running_run_at_once(bench: Bench) -> None:
    bench.open()
    start = bench.start()
    bench.choose("toggle_attention", "sdpa")
    bench.find(QSpinBox, "batch_spin").setValue(7)
    bench.find(QSpinBox, "seq_spin").setValue(33)
    sent = [c for c in bench.worker.commands if isinstance(c, Reconfigure)]
    assert [c.run_id for c in sent] == [start.run_id] * 3
    assert [(c.config.level("attention"), c.config.batch, c.config.seq) for c in sent] == [
        ("sdpa", 4, 128),
        ("sdpa", 7, 128),
        ("sdpa", 7, 33),
    ]
    bench.end(start)


def test_that_what_only_a_new_run_can_change_is_locked_with_its_reason(bench: Bench) -> None:
    bench.open()
    bench.choose("workload_combo", "train")
    names = ("workload_combo", "model_combo", "weights_combo", "device_combo", "seed_spin", "text_combo")
    controls = [bench.find(QWidget, name) for name in names]
    assert all(control.isEnabled() for control in controls)
    start = bench.start()
    for control in controls:
        assert not control.isEnabled()
        assert "Stop first" in control.toolTip()
        assert "Stop first" in control.accessibleDescription()
    bench.end(start)
    for control in controls:
        assert control.isEnabled()
        assert "Stop first" not in control.toolTip()


def test_that_the_window_and_the_worker_agree_on_what_may_change_live() -> None:
    from explorer.engine.session import LIVE

    fields = {field.name for field in dataclasses.fields(RunConfig)}
    assert fields - FIXED_IN_RUN == set(LIVE)


def test_that_a_prompt_edited_within_a_run_waits_for_the_next_one(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    start = bench.start()
    window.intent.change(prompt="class ")
    window.intent.change(temperature=0.5)
    (sent,) = (c for c in bench.worker.commands if isinstance(c, Reconfigure))
    assert sent.config.prompt == start.config.prompt
    assert sent.config.temperature == 0.5
    assert bench.config.prompt == "class "
    bench.end(start)


def test_that_a_refused_change_puts_the_controls_back_and_says_why(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.choose("toggle_attention", "sdpa")
    bench.find(QSpinBox, "batch_spin").setValue(1000)
    problem = Problem(what="Not changed", why="1000 sequences do not fit", detail="Traceback …")
    running = dataclasses.replace(start.config, device="cpu", levels=(("attention", "sdpa"),))
    before = len(bench.worker.commands)
    bench.say(Refused(run_id=start.run_id, config=running, problem=problem))
    assert bench.find(QSpinBox, "batch_spin").value() == start.config.batch
    assert bench.find(QComboBox, "toggle_attention").currentData() == "sdpa"
    assert bench.config.device == "auto"
    assert "1000 sequences do not fit" in window.messages.text
    assert window.messages.severity == "problem"
    assert len(bench.worker.commands) == before, "going back is no change to send"
    bench.end(start)


def test_that_stop_asks_the_worker_and_start_waits_for_its_end(bench: Bench) -> None:
    bench.open()
    start_button, stop_button = bench.find(QPushButton, "start_button"), bench.find(QPushButton, "stop_button")
    assert (start_button.isEnabled(), stop_button.isEnabled()) == (True, False)
    start = bench.start()
    assert (start_button.isEnabled(), stop_button.isEnabled()) == (False, True)
    stop_button.click()
    assert bench.worker.commands[-1] == Stop(run_id=start.run_id)
    assert not start_button.isEnabled()
    bench.end(start)
    assert (start_button.isEnabled(), stop_button.isEnabled()) == (True, False)


def test_that_the_focus_goes_from_start_to_stop_and_back(bench: Bench) -> None:
    window = bench.open()
    window.activateWindow()
    start_button, stop_button = bench.find(QPushButton, "start_button"), bench.find(QPushButton, "stop_button")
    start_button.setFocus()
    start = bench.start()
    assert stop_button.hasFocus()
    bench.end(start)
    assert start_button.hasFocus()


def test_that_readings_of_the_device_are_shown_while_steps_come(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 3, temperature_c=61.4, power_w=540.2, sm_clock_mhz=1980.0))
    assert bench.find(QLabel, "status_temperature").text() == "61 °C"
    assert bench.find(QLabel, "status_power").text() == "540 W"
    assert bench.find(QLabel, "status_clock").text() == "1980 MHz"
    assert bench.find(QLabel, "status_device").text() == "Big GPU"
    bench.end(start)
    assert bench.find(QLabel, "status_power").text() == ""


def test_that_the_first_run_teaches_what_to_do_next(bench: Bench) -> None:
    window = bench.open()
    assert window.messages.text.startswith("Press Start (F5): mini")
    start = bench.start()
    assert window.messages.text == ""
    bench.say(steps(start.run_id, 0, 3))
    assert "Flip one toggle" in window.messages.text
    bench.choose("toggle_attention", "sdpa")
    bench.say(steps(start.run_id, 3, 3))
    assert window.messages.text == "", "it is said once"
    bench.end(start)


def test_that_nothing_moves_when_messages_and_states_change(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    watched = [
        window.panels.plots,
        window.panels.text,
        window.panels.runs,
        bench.find(QPushButton, "start_button"),
        *(bench.find(QComboBox, f"toggle_{o.name}") for o in OPTIMIZATIONS),
    ]

    def places() -> list[tuple[int, ...]]:
        QApplication.processEvents()
        return [(*w.mapTo(window, w.rect().topLeft()).toTuple(), *w.size().toTuple()) for w in watched]

    before = places()
    start = bench.start()
    assert places() == before
    window.messages.show_message("x" * 2000, severity="problem", action="Copy details")
    assert places() == before
    bench.choose("toggle_attention", "flash")
    assert bench.find(QPushButton, "toggle_attention_fix").isVisible()
    assert places() == before
    bench.end(start)
    assert places() == before


def test_that_tab_reaches_every_enabled_control(bench: Bench) -> None:
    window = bench.open()
    for workload in get_args(Workload):
        bench.choose("workload_combo", workload)
        QApplication.processEvents()
        kinds = (QComboBox, QSpinBox, QPushButton, QPlainTextEdit, QTableView, QLineEdit)
        wanted = {
            widget
            for kind in kinds
            for widget in window.findChildren(kind)
            if widget.isVisible()
            and widget.isEnabled()
            and not isinstance(widget.parent(), (QComboBox, QAbstractSpinBox))
        }
        window.activateWindow()
        bench.find(QComboBox, "workload_combo").setFocus()
        reached = set()
        for _ in range(200):
            focused = QApplication.focusWidget()
            reached.add(focused)
            # A text field keeps Tab for itself unless told otherwise; Ctrl+Tab always leaves.
            bench.qtbot.keyClick(focused, Qt.Key.Key_Tab)
        missing = {widget.objectName() or repr(widget) for widget in wanted - reached}
        assert not missing, f"Tab does not reach {missing}"
        unnamed = {w.objectName() or repr(w) for w in wanted if not (w.accessibleName() or getattr(w, "text", str)())}
        assert not unnamed, f"a screen reader has no name for {unnamed}"


def test_that_every_action_of_the_menus_has_a_key_of_its_own_and_is_listed(bench: Bench) -> None:
    window = bench.open()
    menus = window.menuBar().findChildren(QMenu)
    headings = [menu.menuAction() for menu in menus]
    found = [action for menu in menus for action in menu.actions()]
    actions = [action for action in found if not action.isSeparator() and action not in headings]
    assert len(actions) > 20
    keys = [action.shortcut().toString() for action in actions]
    assert "" not in keys, [action.text() for action in actions if action.shortcut().isEmpty()]
    assert len(set(keys)) == len(keys), sorted(keys)
    bench.find(QAction, "keyboard_action").trigger()
    (shown,) = window.findChildren(QTextBrowser, "help_text")
    for action in actions:
        assert action.shortcut().toString() in shown.toPlainText()
        assert action.text().replace("&", "") in shown.toPlainText()


def test_that_an_action_is_found_by_some_letters_and_done_by_return(bench: Bench) -> None:
    bench.open()
    bench.choose("toggle_attention", "sdpa")
    bench.find(QAction, "commands_action").trigger()
    line, found = bench.find(QLineEdit, "command_line"), bench.find(QListWidget, "command_list")
    assert found.count() > 20
    bench.qtbot.keyClicks(line, "UNDO set")
    assert [found.item(i).text() for i in range(found.count())] == ["Undo a setting  (Ctrl+Z)"]
    bench.qtbot.keyClick(line, Qt.Key.Key_Return)
    assert bench.config.level("attention") is None
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    bench.find(QAction, "commands_action").trigger()
    line, found = bench.find(QLineEdit, "command_line"), bench.find(QListWidget, "command_list")
    assert not any("Stop" in found.item(i).text() for i in range(found.count())), "nothing runs that could be stopped"
    bench.qtbot.keyClicks(line, "theme")
    bench.qtbot.keyClicks(line, "no such thing")
    assert found.count() == 0
    bench.qtbot.keyClick(line, Qt.Key.Key_Return)
    bench.qtbot.keyClick(line, Qt.Key.Key_Escape)


def test_that_a_compilation_can_be_given_up_and_the_run_goes_on_as_it_was(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    bench.open()
    start = bench.start()
    bench.choose("toggle_compile", "model")
    wanted = bench.worker.commands[-1]
    assert isinstance(wanted, Reconfigure)
    changes = ("compile off -> model",)
    parked = Parked(run_id=start.run_id, path="f", config=start.config, changes=changes, step=40, segments=2)
    bench.say(parked)
    messages = bench.window.messages
    assert messages.text.startswith("compile off -> model: this may take a minute. The state of step 40 is kept")
    told = Problem(what="At the change compile off -> model: The worker was ended", why="it was ended by hand")
    bench.worker.resumed = [Refused(run_id=start.run_id, config=start.config, problem=told, resumed=True)]
    bench.find(QPushButton, "message_button").click()
    assert len(bench.workers) == 1, "the worker has replaced itself"
    assert "At the change compile off -> model: The worker was ended" in messages.text
    assert bench.config.level("compile") is None
    assert bench.window.bridge.state == "running"
    bench.say(parked, steps(start.run_id, 39, 2))
    assert "this may take a minute" not in messages.text, "it has come"
