"""The worker's memory from the Run menu: a summary to read, copy and save, and the cache given back."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QPlainTextEdit, QPushButton
from window_bench import CPU, GPU, Bench, environment

from explorer.gui import speech
from explorer.gui.language import catalogue
from explorer.gui.memory_window import MemoryWindow
from explorer.messages import CacheEmptied, EmptyCache, MemorySummary, RunEnded, SummarizeMemory, Verify

TOLD = MemorySummary(lines=("torch's allocator holds 3.00 GiB of cuda:0, Big GPU.",), tables=("|=== table ===|",))


@pytest.fixture
def desk(bench: Bench) -> Bench:
    bench.here = environment(GPU, CPU)
    bench.open()
    bench.choose("workload_combo", "train")
    return bench


def test_that_a_summary_is_shown_beside_the_window_copied_saved_and_asked_for_again(
    desk: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = desk.start()
    action = desk.find(QAction, "memory_summary_action")
    assert action.shortcut().toString() == "Ctrl+M"
    action.trigger()
    assert desk.worker.commands[-1] == SummarizeMemory()
    desk.say(TOLD)
    text = "\n".join((*TOLD.lines, *TOLD.tables))
    shown = desk.find(MemoryWindow, "memory_window")
    assert not shown.isModal()
    assert desk.find(QPlainTextEdit, "memory_text").toPlainText() == text
    desk.find(QPushButton, "memory_copy").click()
    assert QGuiApplication.clipboard().text() == text
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "memory.txt"), ""))
    desk.find(QPushButton, "memory_save").click()
    assert (tmp_path / "memory.txt").read_text("utf-8") == text
    desk.find(QPushButton, "memory_again").click()
    assert desk.worker.commands[-2:] == [SummarizeMemory(), SummarizeMemory()]
    desk.say(MemorySummary(lines=("second",), tables=()))
    assert desk.find(MemoryWindow, "memory_window") is shown
    assert desk.find(QPlainTextEdit, "memory_text").toPlainText() == "second"
    shown.close()
    desk.qtbot.waitUntil(lambda: not desk.window.findChildren(MemoryWindow))
    action.trigger()
    desk.say(TOLD)
    desk.find(MemoryWindow, "memory_window").close()
    desk.end(start)


def test_that_an_open_summary_follows_the_language(
    desk: Bench, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "missing_font", lambda wanted: None)
    desk.find(QAction, "memory_summary_action").trigger()
    desk.say(MemorySummary(lines=("no worker; Start opens one",), tables=()))
    shown = desk.find(MemoryWindow, "memory_window")
    desk.window.set_language("zh_CN")
    chinese = catalogue("zh_CN")
    assert shown.windowTitle() == chinese["Memory"]
    assert desk.find(QPushButton, "memory_again").text() == chinese["Look again"]
    assert desk.find(QPlainTextEdit, "memory_text").toPlainText() == chinese["no worker; Start opens one"]
    desk.window.set_language("en")
    assert shown.windowTitle() == "Memory"
    assert desk.find(QPlainTextEdit, "memory_text").toPlainText() == "no worker; Start opens one"
    shown.close()


def test_that_an_emptied_cache_says_what_came_free(desk: Bench) -> None:
    action = desk.find(QAction, "empty_cache_action")
    assert action.shortcut().toString() == "Ctrl+Alt+M"
    action.trigger()
    assert desk.worker.commands[-1] == EmptyCache()
    desk.say(CacheEmptied(freed_bytes=3 * 2**30, held_bytes=2**30))
    assert desk.window.messages.text.startswith("3.00 GiB came free; the allocator still holds 1.00 GiB.")
    action.trigger()
    desk.say(CacheEmptied(freed_bytes=0, held_bytes=2**30))
    assert desk.window.messages.text == "Nothing came free: the allocator keeps 1.00 GiB, all of it in use."


def test_that_both_are_greyed_with_a_reason_where_they_make_no_sense(desk: Bench) -> None:
    summary, empty = desk.find(QAction, "memory_summary_action"), desk.find(QAction, "empty_cache_action")
    assert summary.isEnabled()
    assert empty.isEnabled()
    desk.window.intent.change(device="cpu")
    assert summary.isEnabled(), "what the process holds can be told"
    assert not empty.isEnabled()
    assert "On the CPU torch keeps no cache" in empty.toolTip()
    desk.window.intent.change(device="auto")
    desk.end(desk.start())
    desk.window.diagnosing.look_closer()
    desk.until(lambda: isinstance(desk.worker.commands[-1], Verify))
    for action in (summary, empty):
        assert not action.isEnabled()
        assert "must not be disturbed" in action.toolTip()
    desk.say(RunEnded(run_id=desk.worker.commands[-1].run_id, outcome="completed"))
    desk.until(lambda: not desk.window.bridge.going)
    assert summary.isEnabled()
    assert empty.isEnabled()
