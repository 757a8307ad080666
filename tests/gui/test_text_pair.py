"""Two texts side by side: as a panel, and from Compare in the window."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QCheckBox, QLabel, QPlainTextEdit, QPushButton, QSplitter
from pytestqt.qtbot import QtBot
from window_bench import Bench

from explorer.gui.text_pair import MARKED_LETTERS, TextPair
from explorer.messages import ParityChecked, Problem, RunEnded, Samples, SegmentStarted, Start, Stop, Text, Verify
from explorer.results.checks import Checks
from explorer.results.parity import Arm, Measure, Parity
from explorer.results.sample import Sample, Segment
from explorer.results.text_pair import Written


@pytest.fixture
def pair(qtbot: QtBot) -> TextPair:
    made = TextPair()
    qtbot.addWidget(made)
    made.resize(400, 500)
    made.show()
    qtbot.waitExposed(made)
    return made


def marked(edit: QPlainTextEdit) -> list[tuple[int, str]]:
    """Where each mark begins, and the text in it."""
    return [(s.cursor.selectionStart(), s.cursor.selectedText()) for s in edit.extraSelections()]


def test_that_the_first_letter_that_differs_is_marked_in_both_while_they_come(pair: TextPair) -> None:
    pair.begin("𝄞 = ", ("fp32 baseline", "weight_dtype fp32 -> bf16"))
    pair.append_text(0, "f(x) + 1 and some more of it")
    assert marked(pair.edits[0]) == []
    pair.append_text(1, "f(x) ")
    assert marked(pair.edits[1]) == [], "B may still write the same"
    assert pair.parting.text() == ""
    pair.append_text(1, "- 1")
    # The clef takes two places in Qt's count.
    assert marked(pair.edits[0]) == [(5 + 5, "+ 1 and some"[:MARKED_LETTERS])]
    assert marked(pair.edits[1]) == [(5 + 5, "- 1")]
    assert pair.parting.text() == "The texts part after 5 characters."
    assert pair.edits[1].toPlainText() == "𝄞 = f(x) - 1"
    pair.begin("x", ("a", "b"))
    assert marked(pair.edits[0]) == []


def test_that_a_text_that_ends_sooner_parts_at_its_end_and_equal_ones_do_not(pair: TextPair) -> None:
    pair.begin("", ("a", "b"))
    pair.append_text(0, "abc")
    pair.append_text(1, "ab")
    pair.end(complete=False)
    assert pair.parting.text() == ""
    pair.end(complete=True)
    assert pair.parting.text() == "The texts part after 2 characters."
    assert marked(pair.edits[0]) == [(2, "c")]
    pair.append_text(1, "c")
    assert pair.parting.text() == "The texts are the same: 3 characters."
    assert marked(pair.edits[0]) == []


def test_that_both_follow_what_is_written_and_end_where_they_part(pair: TextPair) -> None:
    pair.begin("", ("a", "b"))
    same = "".join(f"line {n}\n" for n in range(100))
    for text in (same, "x = 1\n", same):
        pair.append_text(0, text)
    bars = [edit.verticalScrollBar() for edit in pair.edits]
    assert bars[0].value() == bars[0].maximum() > 150
    bars[0].setValue(7)
    pair.append_text(0, "more\n")
    assert bars[0].value() == 7, "the person has scrolled up"
    for text in (same, "y = 1\n", same):
        pair.append_text(1, text)
    pair.end(complete=True)
    for edit, letter in zip(pair.edits, "xy", strict=True):
        (mark,) = edit.extraSelections()
        assert mark.cursor.selectedText().startswith(f"{letter} = 1")
        assert edit.viewport().rect().contains(edit.cursorRect(mark.cursor))


def test_that_speeds_stand_over_the_texts(pair: TextPair) -> None:
    pair.begin("x", ("fp32 baseline", "gelu hf -> torch"))
    pair.show_written(1, Written(text="", tokens_per_s=3120.0, first_token_ms=12.5, peak_bytes=300 << 20))
    head = pair.findChild(QLabel, "text_b_head")
    assert head.text() == "B  gelu hf → torch\n3.12k tokens/s · first token 12.5 ms · 300.0 MiB"
    assert pair.findChild(QLabel, "text_a_head").text() == "A  fp32 baseline"


def test_that_texts_stand_beside_each_other_where_there_is_room(pair: TextPair) -> None:
    splitter = pair.findChild(QSplitter)
    assert splitter.orientation() == Qt.Orientation.Vertical
    pair.resize(700, 500)
    assert splitter.orientation() == Qt.Orientation.Horizontal


def said(run_id: int, pieces: list[str]) -> Iterator[Samples | Text]:
    for step, piece in enumerate(pieces):
        phase = ("prefill", "compile", "steady")[min(step, 2)]
        sample = Sample(step=step, segment=0, phase=phase, time_s=step * 2e-3, tokens=1, step_ms=2.0)
        yield Samples(run_id=run_id, samples=(sample,))
        yield Text(run_id=run_id, text=piece)


def started(bench: Bench, number: int) -> Start:
    """The ``number``th Start that the window has sent, its segment begun."""

    def starts() -> list[Start]:
        return [c for c in bench.worker.commands if isinstance(c, Start)]

    bench.until(lambda: len(starts()) > number)
    start = starts()[number]
    segment = Segment(index=0, first_step=0, changes=(), started_at="2026-01-01T00:00:00+00:00")
    bench.say(SegmentStarted(run_id=start.run_id, config=start.config, segment=segment))
    return start


def test_that_compare_has_two_configurations_write_and_shows_both(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    window.intent.change(prompt="def f", seed=5)
    bench.find(QAction, "pin_a_action").trigger()
    window.intent.change(levels=(("weight_dtype", "bf16"),), prompt="class ", seed=6)
    bench.find(QCheckBox, "checks_check").setChecked(False)
    bench.find(QPushButton, "compare_button").click()
    first = started(bench, 0)
    bench.say(*said(first.run_id, ["(x", "):", " return 1"]), RunEnded(run_id=first.run_id, outcome="completed"))
    second = started(bench, 1)
    assert (second.config.prompt, second.config.seed) == ("def f", 5)
    assert second.config.level("weight_dtype") == "bf16"
    bench.say(*said(second.run_id, ["(x", "):", " return 2"]), RunEnded(run_id=second.run_id, outcome="completed"))
    bench.until(lambda: not window.bridge.going)
    panel = window.panels.text
    assert panel.outputs.currentWidget() is panel.pair
    assert [edit.toPlainText() for edit in panel.pair.edits] == ["def f(x): return 1", "def f(x): return 2"]
    assert panel.pair.parting.text() == "The texts part after 12 characters."
    assert "500.0 tokens/s" in bench.find(QLabel, "text_a_head").text()
    assert [run.text for run in window.log.runs] == ["(x): return 1", "(x): return 2"]
    bench.find(QPushButton, "copy_text_button").click()
    copied = QGuiApplication.clipboard().text()
    assert "def f(x): return 1\n\nB  weight_dtype" in copied
    start = bench.start()
    assert panel.outputs.currentWidget() is panel.text_output
    assert panel.text() == "class "
    bench.end(start)


def test_that_numbers_of_both_are_checked_and_their_perplexity_stands_below(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    bench.find(QAction, "pin_a_action").trigger()
    window.intent.change(levels=(("weight_dtype", "int8"),))
    bench.find(QCheckBox, "checks_check").setChecked(True)
    bench.find(QPushButton, "compare_button").click()
    for number in range(2):
        start = started(bench, number)
        bench.say(*said(start.run_id, ["(x", "):"]), RunEnded(run_id=start.run_id, outcome="completed"))
    bench.until(lambda: isinstance(bench.worker.commands[-1], Verify))
    verify = bench.worker.commands[-1]
    pair = window.panels.text.pair
    assert pair.parting.text() == "The texts are the same: 4 characters.", "they are shown before checks end"
    assert not pair.checked.isVisible()
    (int8,) = verify.parity
    arms = {"reference": Arm(perplexity=12.0), "yardstick": Arm(), "asked": Arm(perplexity=12.6)}
    measure = Measure(kind="logits", value=0.01, yardstick=0.01, allowed=0.02)
    found = Parity(measures=(measure,), batch=1, logits_max_abs=0.1, new_tokens=64, first_divergence=11, **arms)
    bench.say(ParityChecked(run_id=verify.run_id, config=int8, found=found))
    bench.say(RunEnded(run_id=verify.run_id, outcome="stopped"))
    bench.until(lambda: not window.bridge.going)
    assert pair.checked.isVisibleTo(pair)
    perplexity, float32 = pair.checked.text().splitlines()
    assert perplexity.endswith("Perplexity of held-out text: A 12, B 12.6 (1.0500x).")
    assert float32 == "B and float32: greedy text parts at token 12 of 64; logits off by 0.01, one by 0.1."
    pair.show_checks((Checks(is_reference=True), Checks(parity=dataclasses.replace(found, first_divergence=None))))
    _, float32 = pair.checked.text().splitlines()
    assert float32 == "B and float32: the same greedy text for 64 tokens; logits off by 0.01, one by 0.1."
    assert "1.0500 times float32's 12" in pair.checked.toolTip()


def test_that_a_stop_leaves_what_there_is_and_says_so(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "generate")
    bench.find(QAction, "pin_a_action").trigger()
    bench.find(QAction, "compare_action").trigger()
    first = started(bench, 0)
    bench.say(*said(first.run_id, ["(x", "):"]))
    bench.find(QAction, "stop_action").trigger()
    bench.until(lambda: bench.worker.commands[-1] == Stop(run_id=first.run_id))
    bench.say(RunEnded(run_id=first.run_id, outcome="stopped"))
    bench.until(lambda: not window.bridge.going)
    assert window.panels.text.pair.edits[0].toPlainText().endswith("(x):")
    assert "before both texts" in window.messages.text
    bench.find(QAction, "compare_action").trigger()
    first = started(bench, 1)
    problem = Problem(what="Model gpt2", why="there is none", bad_request=True)
    bench.say(RunEnded(run_id=first.run_id, outcome="failed", problem=problem))
    bench.until(lambda: not window.bridge.going)
    assert "there is none" in window.messages.text


def test_that_texts_of_another_workload_are_refused(bench: Bench) -> None:
    window = bench.open()
    bench.choose("workload_combo", "train")
    bench.find(QAction, "pin_a_action").trigger()
    window.intent.change(workload="generate")
    bench.find(QAction, "compare_action").trigger()
    assert "compare two of one workload" in window.messages.text
