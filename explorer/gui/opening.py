"""Opens the window and stays until it is closed. Its worker starts first."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from explorer.gui import options
from explorer.gui.bridge import start_early


def main(argv: Sequence[str]) -> int:
    """Open the window and return the exit status when it is closed."""
    asked = options.read(argv)
    # The worker imports torch and transformers for seconds: beside what the window imports, not after it. A thread
    # would take the interpreter lock from the window instead.
    worker = None if asked.in_process else start_early()
    from explorer.gui.app import create
    from explorer.gui.slot_errors import SlotErrors

    app, window = create(argv, worker)
    # Python runs this handler at the next tick of one of the window's timers.
    signal.signal(signal.SIGINT, lambda *_: window.close())
    with SlotErrors(window.messages).caught():
        return app.exec()
