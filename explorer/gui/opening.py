"""Opens the window and stays until it is closed. Its worker starts first where there are cores for both."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from explorer.gui import options
from explorer.gui.bridge import start_early

CORES_TO_SPARE = 4
"""With fewer the worker would take the time from the window: on two cores that others used as well it was shown after
6.1 instead of 3.6 s, and the first text came no sooner.
"""


def main(argv: Sequence[str]) -> int:
    """Open the window and return the exit status when it is closed."""
    asked = options.read(argv)
    # The worker imports torch and transformers for seconds: beside what the window imports, not after it. A thread
    # would take the interpreter lock from the window instead.
    worker = None if asked.in_process or cores() < CORES_TO_SPARE else start_early()
    from explorer.gui.app import create
    from explorer.gui.slot_errors import SlotErrors

    app, window = create(argv, worker)
    # Python runs this handler at the next tick of one of the window's timers.
    signal.signal(signal.SIGINT, lambda *_: window.close())
    with SlotErrors(window.messages).caught():
        return app.exec()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
