"""A worker and all that it has said: how tests of several folders speak with a real one."""

from __future__ import annotations

import time
from collections.abc import Callable

from explorer.engine.isolation import Worker
from explorer.messages import Event, RunEnded, Samples, SegmentStarted
from explorer.results.sample import Sample

WITHIN_S = 90.0


class Talk:
    """A worker and all that it has said."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[Event] = []

    def until(self, wanted: Callable[[Event], bool], within_s: float = WITHIN_S) -> Event:
        """The first event from now on for which ``wanted`` holds."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            new = self.worker.drain()
            self.events += new
            for event in new:
                if wanted(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"not seen within {within_s} s; last events: {self.events[-5:]}")

    def ended(self, run_id: int) -> RunEnded:
        event = self.until(lambda e: isinstance(e, RunEnded) and e.run_id == run_id)
        assert isinstance(event, RunEnded)
        return event

    def samples(self, run_id: int) -> list[Sample]:
        return [s for e in self.events if isinstance(e, Samples) and e.run_id == run_id for s in e.samples]

    def segments(self, run_id: int) -> list[SegmentStarted]:
        return [e for e in self.events if isinstance(e, SegmentStarted) and e.run_id == run_id]
