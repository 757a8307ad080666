"""Prompt, sampling and streaming text on real widgets."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import numpy as np
import pyqtgraph as pg
import pytest
from made_samples import steps
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QFont, QGuiApplication, QTextCursor
from PySide6.QtWidgets import (
    QApplication,
    QDoubleSpinBox,
    QFileDialog,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
)
from pytestqt.qtbot import QtBot
from window_bench import Bench

from explorer.config import RunConfig
from explorer.gui.palette import DARK, LIGHT
from explorer.gui.sampling import as_typed, strings_typed
from explorer.gui.text_panel import TextPanel
from explorer.gui.text_sections import LONGEST_LINE
from explorer.gui.token_times_plot import LEAST_HEIGHT_PX
from explorer.messages import Problem, Reconfigure, Save, Saved, Text

GENERATE = RunConfig(workload="generate", prompt="def f(x):", device="cpu", batch=1)


@pytest.fixture
def panel(qtbot: QtBot) -> TextPanel:
    made = TextPanel()
    qtbot.addWidget(made)
    made.resize(320, 600)
    made.show()
    qtbot.waitExposed(made)
    made.set_config(GENERATE)
    return made


def output(panel: TextPanel) -> QPlainTextEdit:
    return panel.findChild(QPlainTextEdit, "text_output")


def test_that_the_text_is_the_prompt_and_every_piece_in_order(panel: TextPanel) -> None:
    pieces = ["\n    return", " x", " +", " 1\n\n", "déjà ", "字", "\t# end", ""]
    panel.begin_run(GENERATE)
    for piece in pieces:
        panel.append_text(piece)
    assert output(panel).toPlainText() == GENERATE.prompt + "".join(pieces)


@pytest.mark.parametrize(("dark", "colour"), [(False, LIGHT.muted), (True, DARK.muted)])
def test_that_the_prompt_stands_out_from_what_was_generated(panel: TextPanel, dark: bool, colour: str) -> None:
    panel.begin_run(GENERATE)
    panel.append_text(" return 1")
    panel.apply_theme(dark)
    cursor = QTextCursor(output(panel).document())
    cursor.setPosition(len(GENERATE.prompt))
    assert cursor.charFormat().fontWeight() == QFont.Weight.Bold
    assert cursor.charFormat().foreground().color().name() == colour
    cursor.setPosition(len(GENERATE.prompt) + 1)
    assert cursor.charFormat().fontWeight() == QFont.Weight.Normal


def test_that_the_output_follows_the_text_until_the_person_scrolls_up(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    bar = output(panel).verticalScrollBar()
    panel.append_text("line\n" * 200)
    assert bar.value() == bar.maximum() > 0
    panel.append_text("line\n" * 50)
    assert bar.value() == bar.maximum()
    bar.setValue(20)
    panel.append_text("line\n" * 50)
    assert bar.value() == 20


def test_that_streaming_leaves_a_selection_alone(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    cursor = output(panel).textCursor()
    cursor.setPosition(0)
    cursor.setPosition(3, QTextCursor.MoveMode.KeepAnchor)
    output(panel).setTextCursor(cursor)
    panel.append_text(" more")
    assert output(panel).textCursor().selectedText() == "def"


def test_that_the_figures_are_those_of_the_tokens(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    token_ms = [4.0 + i / 500 + (i * 7 % 13) / 10 for i in range(600)]
    samples = steps([31.5, *token_ms], first="prefill", tokens=1, trains=False)
    panel.add_samples(samples[:100])
    panel.add_samples(samples[100:])
    panel.end_run()
    assert panel.first_readout.text() == "31.5 ms "
    assert panel.p50_readout.text() == f"{np.quantile(token_ms, 0.5):.2f} ms "
    assert panel.p99_readout.text() == f"{np.quantile(token_ms, 0.99):.2f} ms "
    recent = [1e3 / s.step_ms for s in samples if s.time_s > samples[-1].time_s - 1.0]
    assert 100 < len(recent) < 500
    assert panel.rate_readout.text() == f"{statistics.median(recent):.1f} tokens/s"


def test_that_a_new_run_clears_text_and_figures(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    panel.append_text(" old")
    panel.add_samples(steps([30.0, 5.0], first="prefill", tokens=1))
    panel.begin_run(dataclasses.replace(GENERATE, prompt="new"))
    assert output(panel).toPlainText() == "new"
    assert panel.first_readout.text() == "– "
    assert panel.rate_readout.text() == "– tokens/s"


def test_that_training_leaves_the_last_text_and_shows_no_figures(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    panel.append_text(" kept")
    panel.begin_run(RunConfig())
    panel.add_samples(steps([30.0, 5.0]))
    panel.end_run()
    assert output(panel).toPlainText() == GENERATE.prompt + " kept"
    assert panel.rate_readout.text() == "– tokens/s"


def test_that_an_edit_reports_every_setting(panel: TextPanel, qtbot: QtBot) -> None:
    prompt = panel.findChild(QPlainTextEdit, "prompt_edit")
    with qtbot.waitSignal(panel.settings_changed) as asked:
        prompt.setPlainText("class A:")
    expected = {
        "prompt": "class A:",
        "more_prompts": (),
        "max_new_tokens": 128,
        "temperature": 0.8,
        "top_k": 50,
        "top_p": 1.0,
    }
    expected |= {"repetition_penalty": 1.0, "stop": (), "sample_every": 0}
    assert asked.args == [expected]
    with qtbot.waitSignal(panel.settings_changed) as asked:
        panel.findChild(QDoubleSpinBox, "top_p_spin").setValue(0.9)
    assert asked.args == [{**expected, "top_p": 0.9}]
    dataclasses.replace(GENERATE, **asked.args[0])
    line = panel.findChild(QLineEdit, "stop_edit")
    line.setText(r"\n\ndef |a\|b|\t\\n")
    with qtbot.waitSignal(panel.settings_changed) as asked:
        qtbot.keyClick(line, Qt.Key.Key_Return)
    assert asked.args[0]["stop"] == ("\n\ndef ", "a|b", "\t\\n")


@pytest.mark.parametrize("stops", [(), ("\n\n",), ("a|b", "|"), ("\\", "\\n", "\n"), ("é\t字 ", '"""'), ("\\q", "x\\")])
def test_that_stop_strings_come_back_from_the_line_that_shows_them(stops: tuple[str, ...]) -> None:
    line = as_typed(stops)
    assert "\n" not in line
    assert strings_typed(line) == stops


def test_that_showing_a_configuration_reports_nothing(panel: TextPanel, qtbot: QtBot) -> None:
    config = dataclasses.replace(GENERATE, prompt="x", max_new_tokens=7, temperature=1.25, top_k=0, top_p=0.5)
    config = dataclasses.replace(config, repetition_penalty=1.25, stop=("\n", "x"))
    with qtbot.assertNotEmitted(panel.settings_changed):
        panel.set_config(config)
    assert panel.findChild(QPlainTextEdit, "prompt_edit").toPlainText() == "x"
    assert panel.findChild(QSpinBox, "max_new_tokens_spin").value() == 7
    assert panel.findChild(QDoubleSpinBox, "temperature_spin").value() == 1.25
    assert panel.findChild(QSpinBox, "top_k_spin").text() == "off"
    assert panel.findChild(QDoubleSpinBox, "top_p_spin").value() == 0.5
    assert panel.findChild(QDoubleSpinBox, "repetition_penalty_spin").value() == 1.25
    assert panel.findChild(QLineEdit, "stop_edit").text() == r"\n|x"


def test_that_typing_keeps_the_cursor_when_the_configuration_comes_back(panel: TextPanel, qtbot: QtBot) -> None:
    panel.settings_changed.connect(lambda edit: panel.set_config(dataclasses.replace(GENERATE, **edit)))
    prompt = panel.findChild(QPlainTextEdit, "prompt_edit")
    cursor = prompt.textCursor()
    cursor.setPosition(4)
    prompt.setTextCursor(cursor)
    qtbot.keyClicks(prompt, "abc")
    assert prompt.toPlainText() == "def abcf(x):"


def test_that_sampling_is_greyed_with_words_in_training_and_the_prompt_is_not(panel: TextPanel) -> None:
    panel.set_config(RunConfig())
    spin = panel.findChild(QDoubleSpinBox, "temperature_spin")
    assert not spin.isEnabled()
    assert "workload is train" in spin.toolTip()
    assert "workload is train" in spin.accessibleDescription()
    assert panel.findChild(QPlainTextEdit, "prompt_edit").isEnabled()
    assert "training run makes no text" in output(panel).placeholderText()


def test_that_samples_of_training_stand_under_their_steps(panel: TextPanel) -> None:
    config = RunConfig(sample_every=50, prompt="def ")
    panel.set_config(config)
    assert panel.findChild(QDoubleSpinBox, "temperature_spin").isEnabled()
    assert panel.findChild(QSpinBox, "sample_every_spin").value() == 50
    panel.begin_run(GENERATE)
    panel.begin_run(config)
    panel.append_sample(50, "def x y")
    panel.append_sample(1100, "def main():\n    pass")
    expected = "— after step 50 —\ndef x y\n\n— after step 1,100 —\ndef main():\n    pass\n\n"
    assert output(panel).toPlainText() == panel.text() == expected
    panel.set_config(dataclasses.replace(GENERATE, sample_every=50))
    assert "training only" in panel.findChild(QSpinBox, "sample_every_spin").toolTip()
    assert not panel.findChild(QSpinBox, "sample_every_spin").isEnabled()


def test_that_top_k_and_top_p_say_that_greedy_does_not_use_them(panel: TextPanel) -> None:
    temperature = panel.findChild(QDoubleSpinBox, "temperature_spin")
    top_k = panel.findChild(QSpinBox, "top_k_spin")
    temperature.setValue(0.0)
    assert temperature.text() == "greedy"
    assert not top_k.isEnabled()
    assert "temperature 0" in top_k.toolTip()
    temperature.setValue(0.5)
    assert top_k.isEnabled()


def test_that_copy_takes_prompt_and_text(panel: TextPanel, qtbot: QtBot) -> None:
    button = panel.findChild(QPushButton, "copy_text_button")
    assert not button.isEnabled()
    panel.begin_run(GENERATE)
    panel.append_text(" return x\n")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "def f(x): return x\n"


def test_that_a_million_characters_keep_their_end(panel: TextPanel) -> None:
    panel.begin_run(GENERATE)
    line = "0123456789" * 4 + "\n"
    for _ in range(250):
        panel.append_text(line * 100)
    text = output(panel).toPlainText()
    assert len(text) >= 15_000 * len(line)
    assert text.endswith(line)
    assert output(panel).blockCount() <= 20_000


def test_that_a_long_line_is_broken_on_the_screen_alone(panel: TextPanel) -> None:
    panel.begin_run(dataclasses.replace(GENERATE, prompt="x = "))
    for _ in range(50):
        panel.append_text("ab" * 97)
    panel.append_text("\nend")
    whole = "x = " + "ab" * 97 * 50 + "\nend"
    lines = panel.text_output.toPlainText().split("\n")
    assert max(map(len, lines)) == LONGEST_LINE
    assert "".join(lines) == whole.replace("\n", "")
    panel.copy_button.click()
    assert QGuiApplication.clipboard().text() == whole
    saved: list[str] = []
    panel.save_wanted.connect(saved.append)
    panel.save_button.click()
    assert saved == [whole]


def test_that_prompts_are_remembered_newest_first_and_once(panel: TextPanel) -> None:
    for prompt in ("def a", "def b", "def a", "import os\nimport sys\n"):
        panel.begin_run(dataclasses.replace(GENERATE, prompt=prompt))
    assert panel.history.prompts() == ["import os\nimport sys\n", "def a", "def b"]
    assert [a.text() for a in panel.history.menu().actions()] == ["import os ⏎ import sys", "def a", "def b"]
    panel.history.menu().actions()[1].trigger()
    assert panel.prompt_edit.toPlainText() == "def a"


def test_that_each_tokens_time_is_drawn_with_median_and_99th_percentile(panel: TextPanel) -> None:
    panel.resize(320, 800)
    panel.show()
    panel.begin_run(GENERATE)
    times = [float(i) for i in range(1, 102)]
    panel.add_samples(steps([30.0, *times], first="prefill", tokens=1, trains=False))
    panel.end_run()
    x, y = panel.times.getPlotItem().listDataItems()[0].getData()
    assert list(y) == times
    assert (x[0], x[-1]) == (1, 101)
    lines = [item for item in panel.times.items() if isinstance(item, pg.InfiniteLine)]
    assert sorted(line.value() for line in lines) == pytest.approx([51.0, 100.0])
    panel.resize(320, 500)
    assert not panel.times.isVisible(), "the text has the room"


@pytest.mark.parametrize("height", range(420, 1000, 20))
def test_that_the_curve_of_times_has_room_to_be_drawn_or_leaves_it_to_the_text(panel: TextPanel, height: int) -> None:
    panel.resize(320, height)
    QApplication.processEvents()
    if not 560 < height < 700:  # between them it depends on the fonts
        assert panel.times.isVisible() == (height >= 700)
    if panel.times.isVisible():
        assert panel.times.height() >= LEAST_HEIGHT_PX
        assert panel.text_output.height() >= 2 * LEAST_HEIGHT_PX


def test_that_earlier_prompts_are_there_when_the_window_opens_again(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    window.intent.change(prompt="class Sieve:")
    bench.end(bench.start())
    window.close()
    window = bench.open()
    assert window.panels.text.history.prompts() == ["class Sieve:"]


def test_that_a_text_is_saved_where_the_person_says(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "text.txt"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(target), ""))
    window = bench.open()
    bench.choose("workload_combo", "generate")
    window.intent.change(prompt="déjà = ")
    start = bench.start()
    bench.say(Text(run_id=start.run_id, text="1\n"))
    bench.end(start)
    bench.find(QPushButton, "save_text_button").click()
    assert target.read_bytes() == "déjà = 1\n".encode()
    assert str(target) in window.messages.text


def test_that_samples_come_from_the_worker_and_their_settings_wait_for_the_next_run(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "train")
    window.intent.change(sample_every=10)
    start = bench.start()
    bench.say(Text(run_id=start.run_id, text="def a", step=10), Text(run_id=start.run_id, text="def b", step=20))
    assert window.panels.text.text() == "— after step 10 —\ndef a\n\n— after step 20 —\ndef b\n\n"
    assert window.log.runs[-1].text == "--- step 10\ndef a\n\n--- step 20\ndef b\n\n"
    window.intent.change(temperature=0.3, sample_every=5)
    assert not [c for c in bench.worker.commands if isinstance(c, Reconfigure)]
    bench.end(start)


def test_that_a_model_is_saved_while_it_trains(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(tmp_path / "model")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (target, ""))
    window = bench.open()
    bench.choose("workload_combo", "train")
    action = bench.find(QAction, "save_model_action")
    action.trigger()
    assert "while it trains" in window.messages.text
    start = bench.start()
    action.trigger()
    assert bench.worker.commands[-1] == Save(run_id=start.run_id, folder=target)
    bench.say(Saved(run_id=start.run_id, folder=target))
    assert target in window.messages.text
    bench.say(Saved(run_id=start.run_id, folder=target, problem=Problem(what="Not saved", why="the disk is full")))
    assert "the disk is full" in window.messages.text
    bench.end(start)
