"""Wait without stopping the window: for commands that drive it as a person would."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QTimer

from explorer.ctrl_c import ctrl_c_asks
from explorer.gui.main_window import MainWindow

LOOK_EVERY_MS = 50


def wait(wait_ms: int) -> None:
    """Let the window live for a while, in its own event loop.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed meanwhile. Raised within a slot it would be printed and lost.
    """
    loop = QEventLoop()
    QTimer.singleShot(wait_ms, loop.quit)
    with ctrl_c_asks() as asked:
        loop.exec()
        if asked():
            raise KeyboardInterrupt


def wait_until(
    condition: Callable[[], bool], window: MainWindow, *, least_s: float = 0.0, limit_s: float = 300.0
) -> None:
    """Wait at least ``least_s`` and until ``condition`` holds.

    Raises:
        RuntimeError: the run failed meanwhile, or the condition did not hold within ``limit_s``.
    """
    waited_ms = 0
    while waited_ms < least_s * 1e3 or not condition():
        wait(LOOK_EVERY_MS)
        waited_ms += LOOK_EVERY_MS
        runs = window.log.runs
        if runs and runs[-1].outcome == "failed":
            raise RuntimeError(f"the run failed: {runs[-1].problem}")
        if waited_ms > limit_s * 1e3:
            raise RuntimeError(f"nothing came within {limit_s:.0f} s. {window.messages.text}")
