"""Tells when a run makes no step any more, though nothing long was announced."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from explorer.messages import Event, Note, Progress, RunEnded, Samples, WorkerLost

LEAST_S = 10.0
STEPS = 10
"""As many times the median step may pass."""
KEPT_STEPS = 100


class StallWatch:
    """``take`` all events as they come, and ``look`` now and then. What Progress announces may take any time.

    ``clock``: seconds that go on, as time.monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._run_id = 0
        self._last_s: float | None = None
        """When the last step came; None while none is due, or once its lack was told."""
        self._step_s: deque[float] = deque(maxlen=KEPT_STEPS)

    def take(self, events: Sequence[Event]) -> None:
        """The events that came since the last call, none included."""
        for event in events:
            match event:
                case Samples():
                    self._run_id, self._last_s = event.run_id, self._clock()
                    self._step_s.extend(sample.step_ms / 1e3 for sample in event.samples)
                case Progress() | RunEnded() | WorkerLost():
                    self._last_s = None
                    self._step_s.clear()
                case _:
                    pass

    def look(self) -> Note | None:
        """What to say of a stall, once each; None where there is none."""
        if self._last_s is None:
            return None
        quiet_s = self._clock() - self._last_s
        usual_s = statistics.median(self._step_s)
        if quiet_s < max(LEAST_S, STEPS * usual_s):
            return None
        self._last_s = None
        return Note(run_id=self._run_id, text=f"no step for {quiet_s:.0f} s, where one took {usual_s * 1e3:.4g} ms")
