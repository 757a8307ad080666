"""Several prompts, one a line: what is asked for, and their texts told apart."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtGui import QFont, QGuiApplication, QTextCursor
from PySide6.QtWidgets import QCheckBox, QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot
from window_bench import Bench

from explorer.config import RunConfig
from explorer.gui.event_batches import merged
from explorer.gui.palette import DARK
from explorer.gui.text_panel import TextPanel
from explorer.messages import Progress, Reconfigure, Text

ONE = RunConfig(workload="generate", prompt="class A:\n    def f", device="cpu", batch=1)
THREE = dataclasses.replace(ONE, prompt="import os", more_prompts=("x", ONE.prompt), batch=3)


@pytest.fixture
def panel(qtbot: QtBot) -> TextPanel:
    made = TextPanel()
    qtbot.addWidget(made)
    made.resize(320, 700)
    made.show()
    qtbot.waitExposed(made)
    return made


def asked(
    panel: TextPanel, config: RunConfig, qtbot: QtBot, *, by_line: bool | None = None, text: str = ""
) -> RunConfig:
    """``config`` as the panel, which shows it, wants it after the person's change."""
    panel.set_config(config)
    with qtbot.waitSignal(panel.settings_changed) as reported:
        if by_line is None:
            panel.findChild(QPlainTextEdit, "prompt_edit").setPlainText(text)
        else:
            panel.findChild(QCheckBox, "prompt_by_line_check").click()
            assert panel.findChild(QCheckBox, "prompt_by_line_check").isChecked() == by_line
    (fields,) = reported.args
    return dataclasses.replace(config, **fields)


def test_that_each_line_becomes_a_prompt_and_the_batch_as_large(panel: TextPanel, qtbot: QtBot) -> None:
    two = asked(panel, ONE, qtbot, by_line=True)
    assert (two.prompts, two.batch) == (("class A:", "    def f"), 2)
    three = asked(panel, two, qtbot, text="import os\n\nx\nclass A:⏎    def f\n  ")
    assert three == THREE
    larger = asked(panel, dataclasses.replace(three, batch=6), qtbot, text="import sys\nx\nclass A:")
    assert (larger.prompts, larger.batch) == (("import sys", "x", "class A:"), 6)
    one = asked(panel, three, qtbot, text="")
    assert (one.prompts, one.batch) == (("",), 1)
    panel.set_config(three)
    again = asked(panel, three, qtbot, by_line=False)
    assert (again.prompts, again.batch) == (("import os\nx\nclass A:\n    def f",), 1)


def test_that_the_box_shows_the_prompts_of_a_configuration(panel: TextPanel) -> None:
    edit, check = panel.prompt_edit, panel.prompts.by_line
    panel.set_config(ONE)
    assert (edit.toPlainText(), check.isChecked()) == (ONE.prompt, False)
    panel.set_config(THREE)
    assert (edit.toPlainText(), check.isChecked()) == ("import os\nx\nclass A:⏎    def f", True)
    panel.set_config(ONE)  # still one a line
    assert edit.toPlainText() == "class A:⏎    def f"
    panel.set_config(dataclasses.replace(THREE, workload="train"))
    assert edit.toPlainText() == "import os"
    assert not check.isEnabled()
    assert "training continues one prompt" in check.toolTip()


def test_that_training_leaves_the_other_prompts_and_the_batch(panel: TextPanel, qtbot: QtBot) -> None:
    panel.set_config(THREE)
    changed = asked(panel, dataclasses.replace(THREE, workload="train"), qtbot, text="a\nb")
    assert changed == dataclasses.replace(THREE, workload="train", prompt="a\nb")


def test_that_an_earlier_prompt_is_put_beside_the_others(panel: TextPanel) -> None:
    panel.set_config(dataclasses.replace(THREE, prompt="import os", more_prompts=("x",)))
    panel.history.chosen.emit("class A:\n    def f")
    assert panel.prompt_edit.toPlainText() == "import os\nx\nclass A:⏎    def f"
    panel.prompts.remember(THREE)
    assert panel.history.prompts() == list(THREE.prompts)


def test_that_texts_grow_each_after_its_own_prompt(panel: TextPanel, qtbot: QtBot) -> None:
    panel.set_config(THREE)
    panel.begin_run(THREE)
    for row, text in (
        (2, "(self):\n"),
        (0, ".path"),
        (1, " = 1\n"),
        (0, "\nimport sys"),
        (2, "        pass"),
        (1, "y"),
    ):
        panel.append_text(text, row)
    shown = [
        "— prompt 1 —\nimport os.path\nimport sys",
        "— prompt 2 —\nx = 1\ny",
        "— prompt 3 —\nclass A:\n    def f(self):\n        pass",
    ]
    assert panel.text_output.toPlainText() == "\n\n".join(shown)
    told = "\n\n".join(text.replace("— prompt", "--- prompt").replace(" —\n", "\n", 1) for text in shown)
    panel.findChild(QPushButton, "copy_text_button").click()
    assert QGuiApplication.clipboard().text() == told
    panel.apply_theme(True)
    cursor = QTextCursor(panel.text_output.document())
    for prompt, text in zip(THREE.prompts, (".path", " = 1", "(self)"), strict=True):
        end = panel.text_output.toPlainText().index(prompt + text) + len(prompt)
        cursor.setPosition(end)
        assert cursor.charFormat().fontWeight() == QFont.Weight.Bold
        assert cursor.charFormat().foreground().color().name() == DARK.muted
        cursor.setPosition(end + 1)
        assert cursor.charFormat().fontWeight() == QFont.Weight.Normal
    panel.begin_run(ONE)
    panel.append_text("(self):")
    assert panel.text_output.toPlainText() == panel.text() == "class A:\n    def f(self):"


def test_that_pieces_of_several_texts_are_put_together_each_by_each() -> None:
    between = Progress(run_id=1, activity="compiling")
    events = [Text(run_id=1, text=str(n), row=n % 3) for n in range(7)]
    assert merged([*events, between, *events[:2]]) == [
        Text(run_id=1, text="036", row=0),
        Text(run_id=1, text="14", row=1),
        Text(run_id=1, text="25", row=2),
        between,
        *events[:2],
    ]
    others = [
        Text(run_id=1, text="a"),
        Text(run_id=2, text="b"),
        Text(run_id=1, text="c"),
        Text(run_id=1, text="d", step=4),
    ]
    assert merged(others) == others


def test_that_prompts_typed_while_a_text_is_written_wait_for_the_next_run(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    window.intent.change(prompt="import os", more_prompts=("x",), batch=2)
    start = bench.start()
    bench.say(Text(run_id=start.run_id, text=".path"), Text(run_id=start.run_id, text=" = 1", row=1))
    assert window.panels.text.text_output.toPlainText() == "— prompt 1 —\nimport os.path\n\n— prompt 2 —\nx = 1"
    window.panels.text.prompt_edit.setPlainText("import os\nx\ny")
    assert (bench.config.prompts, bench.config.batch) == (("import os", "x", "y"), 3)
    assert not [c for c in bench.worker.commands if isinstance(c, Reconfigure)]
    bench.end(start)
    (run,) = window.log.runs
    assert run.text == "--- prompt 1\nimport os.path\n\n--- prompt 2\nx = 1"
    window.panels.text.show_stored(run.config, run.text, run_id=run.run_id)
    assert window.panels.text.text() == run.text
    assert bench.start().config.prompts == ("import os", "x", "y")
