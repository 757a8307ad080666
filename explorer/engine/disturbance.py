"""What befalls the machine while a run goes on: it slept, or the device's clock fell."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from explorer.results.blocks import CLOCK_DROP
from explorer.results.sample import Sample

DROP_READINGS = 5
"""In a row: half a second. A single reading may fall between two kernels."""
USUAL_READINGS = 20
"""So many make the usual clock: before that nothing has fallen."""
KEPT_READINGS = 300
MOST_DROPS = 10
"""More are not told: by then it is clear."""
LEAST_SLEEP_S = 1.0


def slept_s() -> float | None:
    """How long this machine has slept since it was started, in seconds; None where that is not told (not Linux).

    Source: clock_gettime(2): CLOCK_BOOTTIME goes on while the system is suspended, CLOCK_MONOTONIC does not.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return None
    return time.clock_gettime(boottime) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SleepWatch:
    """Tells of each sleep once. ``slept_s``: as the function of that name."""

    def __init__(self, slept_s: Callable[[], float | None] = slept_s) -> None:
        self._slept_s = slept_s
        self._seen_s = slept_s()

    def look(self) -> str | None:
        """What happened since the last look, or None."""
        now_s = self._slept_s()
        if now_s is None or self._seen_s is None or now_s - self._seen_s < LEAST_SLEEP_S:
            return None
        for_s, self._seen_s = now_s - self._seen_s, now_s
        return f"the machine slept for {for_s:.0f} s: the step that it slept in is no measurement"


class ClockWatch:
    """Tells of each fall of the device's clock against what it was in the same segment.

    A reason bit is no sign: the power cap's is set in normal running. A clock that stays low becomes the usual one, so
    that a card which has become warm is told of once.
    """

    def __init__(self) -> None:
        self._segment = -1
        self._read_at_s = math.nan
        self._usual: deque[float] = deque(maxlen=KEPT_READINGS)
        self._low: list[float] = []
        self._fallen = False
        self._told = 0

    def look(self, samples: Sequence[Sample]) -> list[str]:
        """What these samples, the run's next ones, tell."""
        return [line for sample in samples if (line := self._look(sample)) is not None]

    def _look(self, sample: Sample) -> str | None:
        if sample.segment != self._segment:
            self._segment, self._fallen = sample.segment, False
            self._usual.clear()
            self._low.clear()
        clock_mhz = sample.sm_clock_mhz
        if sample.phase != "steady" or sample.read_at_s == self._read_at_s or not math.isfinite(clock_mhz):
            return None
        self._read_at_s = sample.read_at_s
        if len(self._usual) < USUAL_READINGS:
            self._usual.append(clock_mhz)
            return None
        usual_mhz = statistics.median(self._usual)
        if clock_mhz >= (1 - CLOCK_DROP) * usual_mhz:
            self._usual.append(clock_mhz)
            self._low.clear()
            self._fallen = False
            return None
        self._low.append(clock_mhz)
        if len(self._low) >= KEPT_READINGS:
            self._usual.extend(self._low)
            self._low.clear()
            self._fallen = False
        if len(self._low) < DROP_READINGS or self._fallen:
            return None
        self._fallen = True
        self._told += 1
        if self._told > MOST_DROPS:
            return None
        last = " (further falls are not told)" if self._told == MOST_DROPS else ""
        return (
            f"step {sample.step}: the clock fell from {usual_mhz:.0f} to {statistics.median(self._low):.0f} MHz, at "
            f"{sample.temperature_c:.0f} °C and {sample.power_w:.0f} W{last}"
        )
