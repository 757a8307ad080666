"""Files are written on a thread of their own: a disk may take seconds for each, and the window waits for none."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Signal

BRIEF_S = 0.05
"""A file is mostly there by then, and that can be said at once."""
CLOSE_WITHIN_S = 10.0


@dataclass(slots=True)
class _Job:
    work: Callable[[], object]
    then: Callable[[str | None], object]
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    told: bool = False


class FileWriter(QObject):
    """Writes one file after the other, in the order in which they were asked for."""

    _ended = Signal(object)
    """A job; queued to the window's thread"""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended.connect(self._tell)

    def write(
        self, work: Callable[[], object], then: Callable[[str | None], object], *, brief_s: float | None = None
    ) -> bool:
        """Have ``work`` done; whether it is over already.

        Args:
            work: called on another thread; must share nothing that changes with the window.
            then: called in the window with why ``work`` failed, or None.
            brief_s: how long to wait for it at most; None: BRIEF_S.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="files", daemon=True)
            self._thread.start()
        job = _Job(work, then)
        self._jobs.put(job)
        if not job.done.wait(BRIEF_S if brief_s is None else brief_s):
            return False
        self._tell(job)
        return True

    def close(self) -> None:
        """Write what was asked for and end the thread; nothing is told any more."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(CLOSE_WITHIN_S)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work()
            except Exception as error:  # this thread's border: told in the window
                job.error = error
            job.done.set()
            if not self._closed:
                self._ended.emit(job)

    def _tell(self, job: _Job) -> None:
        if job.told or self._closed:
            return
        job.told = True
        if job.error is None:
            job.then(None)
        elif isinstance(job.error, ValueError | RuntimeError | OSError):
            job.then(str(job.error))
        else:
            raise job.error
