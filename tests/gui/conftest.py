"""The window under test: drawn offscreen, settings of its own, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent, QSettings, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from window_bench import Bench

from explorer.gui import file_writer


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for whatever this test lets Qt remember, and for its runs: never the user's, nor another test's."""
    monkeypatch.setenv("GPT2_EXPLORER_STORE", str(tmp_path / "stored" / "runs.sqlite"))
    folder = tmp_path / "settings"
    QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, str(folder))
    return folder


@pytest.fixture(autouse=True)
def exports_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test has written it can read at once, however slow this machine's disk."""
    monkeypatch.setattr(file_writer, "BRIEF_S", 60.0)


@pytest.fixture(autouse=True)
def nothing_left_behind(qapp: QApplication) -> Iterator[None]:
    """Fail a test that leaves a thread, a process, a running timer or a window on the screen."""
    threads = set(threading.enumerate())
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()
    left = [t.name for t in threading.enumerate() if t not in threads and t.is_alive()]
    assert not left, f"threads left behind: {left}"
    assert not multiprocessing.active_children()
    windows = [w for w in QApplication.topLevelWidgets() if w.isVisible()]
    assert not windows, f"windows left open: {windows}"
    timers = [
        timer for window in QApplication.topLevelWidgets() for timer in window.findChildren(QTimer) if timer.isActive()
    ]
    assert not timers, f"timers left running: {[(t.parent(), t.interval()) for t in timers]}"
    # As a user's window it is made before the application has its style rules: among rules each of its two thousand
    # widgets is styled again whenever it gets a parent, a quarter of the time that a window takes.
    qapp.setStyleSheet("")


@pytest.fixture
def bench(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(qtbot, monkeypatch)
