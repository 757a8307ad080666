"""Ctrl-C as a request to end, for work that keeps what it has measured."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from explorer.arguments import above_zero


@contextmanager
def ctrl_c_asks(within_s: float | None = None) -> Iterator[Callable[[], bool]]:
    """While entered, the first Ctrl-C only asks: what is given tells whether it did. The second one interrupts.

    ``within_s``: after so many seconds an end is asked for, too.
    Raises:
        ValueError: ``within_s`` leaves no time.
    """
    until_s = math.inf if within_s is None else time.monotonic() + above_zero("--within-s", within_s)
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked.is_set() or time.monotonic() > until_s
    finally:
        signal.signal(signal.SIGINT, before)
