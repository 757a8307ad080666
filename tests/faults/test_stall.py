"""A run that makes no step any more: told once, and only where nothing long was announced."""

from __future__ import annotations

import pytest

from explorer.experiments.stall import StallWatch
from explorer.messages import Progress, RunEnded, Samples
from explorer.results.sample import Sample


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def steps(step_ms: float, count: int = 5) -> Samples:
    made = Sample(step=0, segment=0, phase="steady", time_s=0.0, tokens=1, step_ms=step_ms)
    return Samples(run_id=7, samples=(made,) * count)


@pytest.mark.parametrize(("step_ms", "quiet_s"), [(50.0, 10.0), (3000.0, 30.0)])
def test_that_silence_of_ten_seconds_or_ten_steps_is_told_once(step_ms: float, quiet_s: float) -> None:
    clock = Clock()
    watch = StallWatch(clock)
    watch.take([steps(step_ms)])
    clock.now_s += quiet_s - 0.1
    assert watch.look() is None
    clock.now_s += 0.2
    note = watch.look()
    assert note is not None
    assert (note.run_id, note.text) == (7, f"no step for {quiet_s:.0f} s, where one took {step_ms:.4g} ms")
    clock.now_s += 1000
    assert watch.look() is None
    watch.take([steps(step_ms)])
    clock.now_s += quiet_s + 1
    assert watch.look() is not None, "a second stall is told, too"


@pytest.mark.parametrize(
    "event", [Progress(run_id=7, activity="first step: loading kernels"), RunEnded(run_id=7, outcome="stopped")]
)
def test_that_what_was_announced_or_has_ended_may_take_any_time(event: Progress | RunEnded) -> None:
    clock = Clock()
    watch = StallWatch(clock)
    assert watch.look() is None
    watch.take([steps(50.0), event])
    clock.now_s += 1000
    assert watch.look() is None
