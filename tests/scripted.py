"""A worker that answers comparisons and checks by script, for experiments as steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from explorer.config import RunConfig
from explorer.experiments.steps import FreshWorker, Order, Steps
from explorer.messages import (
    BlockEnded,
    Compare,
    Event,
    ParityChecked,
    Problem,
    Profiled,
    RunEnded,
    Samples,
    Start,
    Stop,
    Verify,
    WorkerLost,
    WorkerReady,
)
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.proof import Profile
from explorer.results.sample import Sample

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0, triton_problem="no CUDA device")
HERE = Environment(devices=(CPU,), platform="Linux", python="3.11", explorer="1", torch="2.13.0")
OUT_OF_MEMORY = Problem(what="Out of memory", why="too much", out_of_memory=True)
PROFILE = Profile(
    device="cpu",
    workload="train",
    steps=1,
    step_ms=1.0,
    kernels=(),
    operators=(),
    products=(),
    attention_softmax=(),
    block_forwards=(1, 1),
)

Result = TypeVar("Result")


class Answers:
    """Plays the worker: ``step_ms`` and ``peak_bytes`` say what a configuration takes, or which problem it has."""

    def __init__(
        self,
        step_ms: Callable[[RunConfig], float | Problem | WorkerLost],
        peak_bytes: Callable[[RunConfig], int] = lambda config: 1000,
        pairs: int = 8,
    ) -> None:
        self.sent: list[Order] = []
        self._step_ms = step_ms
        self._peak_bytes = peak_bytes
        self._pairs = pairs
        self._going: tuple[int, ...] = ()

    @property
    def compared(self) -> list[tuple[RunConfig, RunConfig]]:
        return [order.arms for order in self.sent if isinstance(order, Compare)]

    @property
    def started(self) -> list[RunConfig]:
        return [order.config for order in self.sent if isinstance(order, Start)]

    def to(self, orders: Sequence[Order]) -> list[Event]:
        """The events that ``orders`` bring about."""
        events: list[Event] = []
        for order in orders:
            self.sent.append(order)
            match order:
                case Compare():
                    events += self._compare(order)
                case Start():
                    events += self._start(order)
                case Verify():
                    events += [ParityChecked(run_id=order.run_id, config=c, found=OUT_OF_MEMORY) for c in order.parity]
                    events += [Profiled(run_id=order.run_id, config=c, found=PROFILE) for c in order.proof]
                    events.append(RunEnded(run_id=order.run_id, outcome="completed"))
                case Stop():
                    events += [RunEnded(run_id=run_id, outcome="stopped") for run_id in self._going]
                    self._going = ()
                case FreshWorker():
                    events.append(WorkerReady(environment=HERE))
                case _:
                    raise AssertionError(order)
        return events

    def _compare(self, order: Compare) -> list[Event]:
        times = [self._step_ms(config) for config in order.arms]
        for found in times:
            if isinstance(found, WorkerLost):
                return [found]
            if isinstance(found, Problem):
                return [RunEnded(run_id=run_id, outcome="failed", problem=found) for run_id in order.run_ids]
        self._going = order.run_ids
        solo: list[Event] = [
            Samples(run_id=run_id, samples=(self._sample(config, 0),))
            for run_id, config in zip(order.run_ids, order.arms, strict=True)
        ]
        return solo + [
            BlockEnded(
                run_id=order.run_ids[min(arm, 1)],
                arm=arm,
                pair=pair,
                steps=10,
                step_ms_median=float(times[min(arm, 1)]) * (1 + late),  # type: ignore[arg-type]
                sm_clock_mhz=math.nan,
            )
            for pair in range(self._pairs)
            for arm, late in enumerate((0.0, *order.delays))
        ]

    def _start(self, order: Start) -> list[Event]:
        found = self._step_ms(order.config)
        if isinstance(found, WorkerLost):
            return [found]
        if isinstance(found, Problem):
            return [RunEnded(run_id=order.run_id, outcome="failed", problem=found)]
        steps = 40 if order.steps is None else order.steps
        samples = tuple(self._sample(order.config, step) for step in range(steps))
        ended = [] if order.steps is None else [RunEnded(run_id=order.run_id, outcome="completed")]
        self._going = (order.run_id,) if order.steps is None else ()
        return [Samples(run_id=order.run_id, samples=samples), *ended]

    def _sample(self, config: RunConfig, step: int) -> Sample:
        found = self._step_ms(config)
        assert isinstance(found, float)
        return Sample(
            step=step,
            segment=0,
            phase="steady" if step >= 20 or step == 0 else "warmup",
            time_s=0.0,
            tokens=config.batch * config.seq,
            step_ms=found,
            peak_allocated_bytes=self._peak_bytes(config),
        )


def played(steps: Steps[Result], answers: Answers) -> Result:
    """Run ``steps`` to its end with ``answers``."""
    try:
        orders = next(steps)
        while True:
            orders = steps.send(answers.to(orders))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
