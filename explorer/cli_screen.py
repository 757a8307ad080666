"""What long headless work shares: one line of progress on a terminal, and Ctrl-C as a request to end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from explorer.experiments.steps import AskedToStop
from explorer.messages import Event, Progress


class ProgressLine:
    """A line of standard error that is written over; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self.lead = ""
        """What stands before every text: how far the whole is."""

    def show(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{self.lead}{text}")
            sys.stderr.flush()

    def show_event(self, event: Event) -> None:
        """Show what the worker is doing, where ``event`` tells."""
        if isinstance(event, Progress):
            part = "" if event.done is None else f" {event.done:.0f}"
            whole = "" if event.total is None else f" of {event.total:.0f}"
            self.show(f"{event.activity}{part}{whole} {event.unit}".rstrip())

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def ctrl_c_asks() -> Iterator[AskedToStop]:
    """While entered, the first Ctrl-C only asks: what is given tells whether it did. The second one interrupts."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
