"""Drive one run to its end: the headless counterpart of the window's Start, toggles and Stop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from explorer.config import RunConfig
from explorer.experiments.stall import StallWatch
from explorer.messages import (
    Command,
    Event,
    Problem,
    Reconfigure,
    Refused,
    RunEnded,
    Samples,
    Start,
    Stop,
    WorkerLost,
    WorkerReady,
)
from explorer.results.environment import Environment

POLL_S = 0.02
STOP_WITHIN_S = 10.0
INTERRUPTED_WITHIN_S = 2.0
"""A worker that has not ended its run so long after Ctrl-C compiles or hangs: it is ended, and its steps are kept."""


class Worker(Protocol):
    """The part of a worker that an experiment uses."""

    def send(self, command: Command) -> None: ...
    def drain(self) -> list[Event]: ...


class WorkerGone(RuntimeError):
    """The worker ended without having been asked to; the text is its last words."""


def wait_until_ready(worker: Worker, on_event: Callable[[Event], None]) -> Environment:
    """Wait for the worker's first event.

    Raises:
        WorkerGone: it died while starting.
    """
    while True:
        for event in worker.drain():
            on_event(event)
            if isinstance(event, WorkerReady):
                return event.environment
            if isinstance(event, WorkerLost):
                words = event.last_words or f"exit status {event.exit_code}"
                raise WorkerGone(f"the worker could not start: {words}")
        time.sleep(POLL_S)


def run_to_end(
    worker: Worker, start: Start, on_event: Callable[[Event], None], *, then: Sequence[RunConfig] = ()
) -> RunEnded:
    """Send ``start`` and hand every event to ``on_event`` until the run has ended; returns how.

    ``then``: configurations to change to live, one after another, each once ``start.steps`` steps of the one
    before have been seen. The worker never waits for the change, so a segment can be some steps longer.

    Ctrl-C stops the run at its next step, so that what was measured is kept; KeyboardInterrupt is raised again
    once the run has ended, or after ``INTERRUPTED_WITHIN_S`` where no model is to be saved.
    """
    drive = _Drive(worker, start, on_event, then)
    try:
        return drive.until_ended(None)
    except KeyboardInterrupt:
        worker.send(Stop(run_id=start.run_id))
        drive.until_ended(None if start.save_to else time.monotonic() + INTERRUPTED_WITHIN_S)
        raise


class _Drive:
    """One run in hand: ``_left`` are the settings still to change to."""

    def __init__(
        self, worker: Worker, start: Start, on_event: Callable[[Event], None], then: Sequence[RunConfig]
    ) -> None:
        assert not then or start.steps is not None
        self._worker = worker
        self._id = start.run_id
        self._on_event = on_event
        self._left = list(then)
        self._ends_by_stop = bool(then)
        self._steps_each = start.steps or 0
        self._segment = 0
        self._seen = 0
        self._stall = StallWatch()
        worker.send(dataclasses.replace(start, steps=None) if then else start)

    def until_ended(self, deadline_s: float | None) -> RunEnded:
        while deadline_s is None or time.monotonic() < deadline_s:
            events = self._worker.drain()
            self._stall.take(events)
            note = self._stall.look()
            if note is not None:
                self._on_event(note)
            for event in events:
                event = self._answer(event)
                self._on_event(event)
                if isinstance(event, RunEnded) and event.run_id == self._id:
                    return event
            time.sleep(POLL_S)
        ended = RunEnded(run_id=self._id, outcome="stopped")
        self._on_event(ended)
        return ended

    def _answer(self, event: Event) -> Event:
        """Do what ``event`` calls for; returns it, or what it comes to for this run."""
        match event:
            case Samples() if self._ends_by_stop:
                self._seen += sum(sample.segment == self._segment for sample in event.samples)
                if self._seen >= self._steps_each:
                    self._move_on()
            case Refused() if event.resumed:
                self._segment, self._seen = self._segment + 1, 0  # as long as was asked for, with what it had before
            case Refused():
                self._worker.send(Stop(run_id=self._id))
                return RunEnded(run_id=self._id, outcome="failed", problem=event.problem)
            case RunEnded() if self._ends_by_stop and event.outcome == "stopped" and not self._left:
                return dataclasses.replace(event, outcome="completed")  # stopped by this driver, as planned
            case WorkerLost():
                last = event.last_words.splitlines()[-1:] or ["it left no message"]
                problem = Problem(
                    what=f"The worker ended by itself{event.how}",
                    why=last[0],
                    remedy="What was measured until then is kept.",
                    detail=event.last_words,
                )
                return RunEnded(run_id=self._id, outcome="failed", problem=problem)
            case _:
                pass
        return event

    def _move_on(self) -> None:
        self._seen = 0
        self._segment += 1
        if self._left:
            self._worker.send(Reconfigure(run_id=self._id, config=self._left.pop(0)))
        else:
            self._worker.send(Stop(run_id=self._id))
