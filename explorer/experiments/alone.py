"""Measure one configuration by itself: warm up, time some steps, stop. Or only see whether it fits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from explorer.experiments.compare import Limits
from explorer.experiments.single import STOP_WITHIN_S
from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import Problem, RunEnded, Samples, Start, Stop, WorkerLost
from explorer.results.point import Point
from explorer.results.sample import Sample
from explorer.results.statistics import has_settled

LEAST_STEPS = 10
PROBE_STEPS = 3
"""From the second step on there are gradients and the optimizer's state beside each other: the peak is reached."""


def alone(start: Start, *, block_s: float, limits: Limits, asked_to_stop: AskedToStop) -> Steps[tuple[Point, bool]]:
    """Do ``start`` and return what it showed, and whether the worker is still there. The worker must be ready.

    With ``start.steps`` it ends by itself, and only tells whether it fits. Without, it is stopped once ``block_s``
    seconds or ten steps of steady time, whichever is longer, have passed, or the budget of ``limits`` since the first.
    """
    samples: list[Sample] = []
    deadline_s: float | None = None
    asked_at_s: float | None = None
    by_person = False
    orders: Sequence[Order] = (start,)
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case Samples() if event.run_id == start.run_id:
                    samples += event.samples
                    if deadline_s is None:
                        deadline_s = time.monotonic() + limits.budget_s
                case RunEnded() if event.run_id == start.run_id:
                    usable = event.problem is None or not event.problem.spent
                    return _point(start, samples, event.problem, stopped=by_person), usable
                case WorkerLost():
                    why = event.last_words or f"status {event.exit_code}"
                    return _point(start, samples, Problem(what="The worker died", why=why), stopped=False), False
                case _:
                    pass
        now_s = time.monotonic()
        if asked_at_s is None:
            by_person = asked_to_stop()
            spent = deadline_s is not None and now_s > deadline_s
            if by_person or (start.steps is None and (spent or _enough(samples, block_s))):
                asked_at_s = now_s
                orders = (Stop(run_id=start.run_id),)
        elif now_s > asked_at_s + STOP_WITHIN_S:
            return _point(start, samples, None, stopped=True), False


def _enough(samples: Sequence[Sample], block_s: float) -> bool:
    steady = [sample.step_ms for sample in samples if sample.phase == "steady"]
    return len(steady) >= LEAST_STEPS and sum(steady) >= block_s * 1e3


def _point(start: Start, samples: Sequence[Sample], problem: Problem | None, *, stopped: bool) -> Point:
    if problem is not None:
        return Point(problem=str(problem), out_of_memory=problem.out_of_memory)
    steady = [sample.step_ms for sample in samples if sample.phase == "steady"]
    timed = steady if start.steps is None else []
    return Point(
        step_ms=statistics.median(timed) if timed else None,
        n=len(timed),
        settled=has_settled([sample.step_ms for sample in samples if sample.phase == "warmup"]),
        peak_bytes=max((sample.peak_allocated_bytes for sample in samples), default=-1),
        reserved_bytes=max((sample.reserved_bytes for sample in samples), default=-1),
        stopped=stopped,
    )
