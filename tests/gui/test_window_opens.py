"""The window is there before the worker is and without torch, and gone within two seconds of being closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import multiprocessing, sys, time
began = time.perf_counter()

def main():
    from PySide6.QtTest import QTest
    from explorer.gui.app import create
    app, window = create(["main.py", "--settings", sys.argv[1]])
    shown_s = time.perf_counter() - began
    assert window.isVisible()
    assert window.bridge.state == "absent", window.bridge.state
    heavy = [name for name in ("torch", "transformers", "triton", "numba", "scipy") if name in sys.modules]
    assert not heavy, heavy
    again, second = create(["--settings", sys.argv[1]])
    assert again is app
    second.close()
    limit = time.perf_counter() + 120
    while window.bridge.state != "ready" and time.perf_counter() < limit:
        QTest.qWait(20)
    ready_s = time.perf_counter() - began
    assert window.bridge.state == "ready", window.bridge.state
    assert "torch" not in sys.modules, "the worker's process imports it, not this one"
    assert shown_s < ready_s
    window.intent.change(model="mini", weights="random", device="cpu", batch=64, seq=256)
    window.control.start()
    while not (window.log.runs[0].segments or window.log.runs[0].outcome != "running") and time.perf_counter() < limit:
        QTest.qWait(20)
    assert window.bridge.going, window.messages.text
    closing = time.perf_counter()
    window.close()
    closed_s = time.perf_counter() - closing
    assert closed_s < 2.0, f"closed in {closed_s} s while a long step was running"
    assert not multiprocessing.active_children()
    print(f"shown {shown_s:.2f} s, worker ready {ready_s:.2f} s, closed within a run in {closed_s:.2f} s")

if __name__ == "__main__":
    main()
"""


def test_that_the_window_shows_without_torch_before_the_worker_and_closes_within_a_long_step(tmp_path: Path) -> None:
    script = tmp_path / "open_window.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "settings.ini")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr


EARLY = """
import sys
from explorer.entry import main
from explorer.gui import bridge, opening

def open_worker(*, in_process):
    assert not in_process
    print(*(name for name in ("PySide6.QtWidgets", "pyqtgraph", "explorer.gui.main_window") if name in sys.modules))
    raise SystemExit(7)

bridge.open_worker = open_worker
opening.cores = lambda: 4
main([])
"""


def test_that_the_worker_starts_before_the_window_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY],
        env={**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == "\n", "its own imports take seconds, and need not wait for these"


def test_that_a_wrong_option_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "--no-such-option"],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
