"""A mistake of the window's own code costs one message, not the window: nor a thread's, which would end unheard."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from PySide6.QtCore import QObject, Signal

from explorer.gui.language import tr
from explorer.gui.message_bar import MessageBar
from explorer.messages import Problem


class SlotErrors(QObject):
    """Says each mistake once, by its place: one in a timer comes again ten times a second."""

    _raised = Signal(object)
    """The exception; queued to the window's thread where another raised it"""

    def __init__(self, messages: MessageBar) -> None:
        super().__init__(messages)
        self._messages = messages
        self._said: set[str] = set()
        self._raised.connect(self._say)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """While entered, what would end in a traceback on the console is said in the window as well."""
        before, before_in_threads = sys.excepthook, threading.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            self._tell(error)

        def thread_hook(args: threading.ExceptHookArgs) -> None:
            before_in_threads(args)
            self._tell(args.exc_value)

        sys.excepthook, threading.excepthook = hook, thread_hook
        try:
            yield
        finally:
            sys.excepthook, threading.excepthook = before, before_in_threads

    def _tell(self, error: BaseException | None) -> None:
        if isinstance(error, Exception):  # Ctrl-C is none
            self._raised.emit(error)

    def _say(self, error: Exception) -> None:
        detail = "".join(traceback.format_exception(error))
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f"{type(error).__name__} {[(frame.filename, frame.lineno) for frame in last]}"
        if place in self._said:
            return
        self._said.add(place)
        text = str(error).strip()
        self._messages.show_problem(
            Problem(
                what=tr("The window made a mistake"),
                why=f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__,
                remedy=tr(
                    "What runs goes on and is kept. Please report the details; open the window anew if it is odd."
                ),
                detail=detail,
            )
        )
