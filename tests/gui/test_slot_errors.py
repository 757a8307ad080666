"""Exceptions in the window's own code: said once, with details a click away, and the window goes on."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QPushButton
from window_bench import Bench, steps

from explorer.gui import opening
from explorer.gui.main_window import MainWindow
from explorer.gui.opening import main
from explorer.gui.slot_errors import SlotErrors
from explorer.results.store import Store


def test_that_an_exception_in_a_slot_is_said_once_and_the_run_goes_on(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    ticks = iter(range(1000))

    def slot() -> None:
        next(ticks)
        raise KeyError("no such curve")

    timer = QTimer(window)
    timer.timeout.connect(slot)
    with bench.qtbot.capture_exceptions() as printed, SlotErrors(window.messages).caught():
        timer.start(1)
        bench.until(lambda: next(ticks) > 10)
        assert window.messages.severity == "problem"
        assert window.messages.text.startswith("The window made a mistake: KeyError: 'no such curve'.")
        button = bench.find(QPushButton, "message_button")
        assert button.text() == "Copy details"
        button.click()
        assert "in slot" in QGuiApplication.clipboard().text()
        bench.until(lambda: next(ticks) > 20)
        assert window.messages.text == "", "once is enough"
        timer.stop()
    assert len(printed) > 10, "each is printed all the same"
    bench.say(steps(start.run_id, 0, 5))
    assert len(window.log.run(start.run_id).columns) == 5
    bench.end(start)


@pytest.mark.parametrize("cores", [2, 4])
def test_that_the_program_itself_says_its_mistakes_and_lives_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(opening, "cores", lambda: cores)
    said = []

    def fail() -> None:
        QTimer.singleShot(0, look)
        raise LookupError("no such curve")

    def look() -> None:
        (window,) = (w for w in QApplication.topLevelWidgets() if isinstance(w, MainWindow) and w.isVisible())
        said.append(window.messages.text)
        window.close()

    QTimer.singleShot(0, fail)
    before = signal.getsignal(signal.SIGINT)
    try:
        with bench.qtbot.capture_exceptions():
            assert main(["main.py", "--no-store"]) == 0
        assert len(bench.workers) == 1, "the window takes the one that was started for it"
        assert not bench.worker.alive
    finally:
        signal.signal(signal.SIGINT, before)
    assert "LookupError: no such curve" in said[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_that_an_exception_on_another_thread_is_said(bench: Bench) -> None:
    window = bench.open()

    def work() -> None:
        raise ZeroDivisionError

    with SlotErrors(window.messages).caught():
        thread = threading.Thread(target=work)
        thread.start()
        bench.until(lambda: "The window made a mistake: ZeroDivisionError" in window.messages.text)
        thread.join()


def test_that_two_windows_keep_their_runs_in_one_file_at_once(bench: Bench, tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    windows = []
    for _ in range(2):
        window = bench.open("--store", str(store))
        start = bench.start()
        bench.say(steps(start.run_id, 0, 30))
        windows.append((window, bench.worker, start))
    for first in (30, 60):
        for window, worker, start in windows:
            bench.window = window
            worker.say(steps(start.run_id, first, 30))
            bench.until(lambda: not worker._events)  # noqa: B023
    for window, _, _ in windows:
        assert window.messages.severity == "hint", window.messages.text
        window.close()
    with Store(store, read_only=True) as stored:
        listed = stored.runs()
        steps_kept = [stored.load(line.id).columns.column("step").tolist() for line in listed.runs]
    assert not listed.unreadable
    assert steps_kept == [list(range(90))] * 2
