"""A window that is gone without a word: so is its worker, and what it had measured is found by the next one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from processes import running, until
from windows import at_work

from explorer.config import RunConfig
from explorer.results.store import Store

pytest.importorskip("PySide6")
GONE_WITHIN_S = 1.0


def look_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps of the one run are in the file, whole and in order; the next window finds the run to offer it."""
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 11)
    with Store(store) as stored:
        assert stored.lost() == [1]
        record = stored.load(1)
    assert record.outcome == "incomplete"
    steps = record.columns.column("step").tolist()
    assert steps == list(range(len(steps)))
    return len(steps)


def test_that_with_a_killed_window_its_worker_is_gone_and_its_steps_are_there(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_work(tiny, tmp_path, steps=20) as seen:
        seen.window.kill()
        seen.window.wait()
        until(lambda: not running(seen.worker_id), within_s=GONE_WITHIN_S)
    assert look_at(seen.store, monkeypatch) >= seen.steps


@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="needs an X server to end: Debian's xvfb")
def test_that_with_the_x_server_gone_the_window_ends_and_its_worker_with_it(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(writing), "-nolisten", "tcp"], pass_fds=[writing])
    os.close(writing)
    try:
        with os.fdopen(reading) as told:
            display = f":{told.readline().strip()}"
        screen = {"DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}
        with at_work(tiny, tmp_path, steps=20, environ=screen) as seen:
            server.kill()
            server.wait()
            seen.window.wait(GONE_WITHIN_S + 4.0)  # Qt ends the program itself then; how is its own affair
            until(lambda: not running(seen.worker_id), within_s=GONE_WITHIN_S)
    finally:
        server.kill()
        server.wait()
    assert look_at(seen.store, monkeypatch) >= seen.steps
