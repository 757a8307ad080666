"""Two configurations against each other: A and B by turns, in blocks, so that what drifts hits both alike."""

from __future__ import annotations

import itertools
import queue
import random
import statistics
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from explorer.engine.delay import Delay
from explorer.engine.errors import BadRequest, Cancelled, Diverged
from explorer.engine.session import Session, check
from explorer.engine.task import Outcome, Task
from explorer.engine.training import TrainingLoop
from explorer.messages import BlockEnded, Command, Compare, Event
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample

SOLO_STEPS = 10
"""Steady steps that each arm makes alone on the device; its memory peak is taken from these."""


class LiveComparison(Task[Compare]):
    """Each arm alone first, until it has settled; then blocks of both, in an order drawn by seed: ABBA or BAAB.

    Of equal arms only the second is alone first: what it needs, both need. Where B is delayed by several shares, each
    pair has a block of it for each, and every other pair has the order of the one before reversed.

    Both arms have the same seed, so the same weights and batches. Where they do not fit into memory together they
    are built anew for each block. Goes on until Stop, or until the loss of an arm is no number.
    """

    def __init__(
        self,
        compare: Compare,
        flag: threading.Event,
        commands: queue.SimpleQueue[Command],
        emit: Callable[[Event], None],
        here: Environment,
    ) -> None:
        super().__init__(compare, flag, commands, emit, here)
        self._delays: list[Delay | None] = []
        """Of B's blocks, by arm from 1 on."""
        self._announced: set[int] = set()

    def _run_on(self, device: DeviceInfo) -> Outcome:
        for config in self._command.arms:
            if config.workload != "train":
                raise BadRequest(what="Not compared", why=f"the workload is {config.workload}; only train is compared")
            self._config = config
            check(config, device)  # before either is loaded
        self._look_at(device)
        if self._command.a_alone and self._command.arms[0] != self._command.arms[1]:
            with self._solo(0, device):
                pass
        with ExitStack() as stack:
            second = stack.enter_context(self._solo(1, device))
            try:
                self._report("loading both arms", None, None, "")
                first = stack.enter_context(self._solo(0, device, alone=False))
            except torch.OutOfMemoryError:
                first = None
            if first is not None:
                self._alternate(lambda arm, pair: self._block((first, second)[min(arm, 1)], arm, pair, alone=False))
        # Here only where both do not fit: _alternate ends by raising Cancelled.
        self._alternate(lambda arm, pair: self._rebuilt(arm, pair, device))
        return "stopped"

    def _solo(self, arm: int, device: DeviceInfo, *, alone: bool = True) -> Session:
        """A session of ``arm``, warmed up by the rule and suspended. ``alone``: no other one holds memory; beside
        another one it stops at its first steady step, since there is no peak to be told.
        """
        self._config = self._command.arms[arm]
        with ExitStack() as opening:
            session = opening.enter_context(self._open(self._config, device))
            if alone:
                session.begin_segment(0)
            else:
                session.begin_beside_another()
            if arm not in self._announced:
                self._announced.add(arm)
                self._announce(self._command.run_ids[arm], session, ())
            steady: list[float] = []
            while len(steady) < (SOLO_STEPS if alone else 1):
                steady += [sample.step_ms for sample in _steady(self._step(session, arm))]
            if arm == 1 and not self._delays:
                step_ms = statistics.median(steady)
                self._delays = [
                    Delay(session.run.device, share * step_ms) if share else None for share in self._command.delays
                ]
            self._take(self._command.run_ids[arm], session, all_of_them=True)
            session.suspend()
            opening.pop_all()
        return session

    def _alternate(self, block: Callable[[int, int], None]) -> None:
        draw = random.Random(self._command.seed)
        arms = range(1 + len(self._command.delays))
        order: list[int] = []
        for pair in itertools.count():
            order = order[::-1] if pair % 2 else draw.sample(arms, len(arms))
            for arm in order:
                self._config = self._command.arms[min(arm, 1)]
                block(arm, pair)

    def _rebuilt(self, arm: int, pair: int, device: DeviceInfo) -> None:
        with self._solo(min(arm, 1), device) as session:
            self._block(session, arm, pair, alone=True)

    def _block(self, session: Session, arm: int, pair: int, *, alone: bool) -> None:
        """``block_steps`` steps or ``block_s`` seconds, whichever is longer, and the event that sums them up."""
        session.resume(pair, alone=alone)
        assert isinstance(session.loop, TrainingLoop)
        delay = self._delays[arm - 1] if arm else None
        run = min(arm, 1)
        sleeps = self._sleeps
        counted: list[Sample] = []
        while not self._enough(counted, 0):
            if delay is not None:
                delay()
            counted += _steady(self._step(session, run))
            # Those under way will count, too: to wait for them here spares as many steps.
            if self._enough(counted, session.loop.under_way):
                counted += _steady(self._take(self._command.run_ids[run], session, all_of_them=True))
        session.suspend()
        self._emit(
            BlockEnded(
                run_id=self._command.run_ids[run],
                arm=arm,
                pair=pair,
                steps=len(counted),
                step_ms_median=statistics.median(sample.step_ms for sample in counted),
                sm_clock_mhz=statistics.median(sample.sm_clock_mhz for sample in counted),
                other_processes_bytes=max(sample.other_processes_bytes for sample in counted),
                slept=self._sleeps > sleeps,
            )
        )

    def _enough(self, counted: Sequence[Sample], under_way: int) -> bool:
        """Whether a block has its length with ``under_way`` more steps, none of them shorter than those ``counted``."""
        times = [sample.step_ms for sample in counted]
        expected_ms = sum(times) + under_way * min(times, default=0.0)
        return len(times) + under_way >= self._command.block_steps and expected_ms >= self._command.block_s * 1e3

    def _step(self, session: Session, arm: int) -> list[Sample]:
        run_id = self._command.run_ids[arm]
        if self._flag.is_set():
            self._take(run_id, session, all_of_them=True)
            raise Cancelled
        session.loop.step()
        taken = self._take(run_id, session)
        no_number = self._losses[run_id].no_number
        if no_number is not None:
            raise Diverged("AB"[arm], no_number)
        return taken


def _steady(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.phase == "steady"]
