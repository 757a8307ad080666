"""Two configurations against each other: A and B by turns, in blocks, so that what drifts hits both alike."""

from __future__ import annotations

import itertools
import queue
import random
import statistics
import threading
from collections.abc import Callable
from contextlib import ExitStack

import torch

from explorer.engine.delay import Delay
from explorer.engine.errors import BadRequest, Cancelled, Diverged
from explorer.engine.session import Session
from explorer.engine.task import Outcome, Task
from explorer.messages import BlockEnded, Command, Compare, Event
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample

SOLO_STEPS = 10
"""Steady steps that each arm makes alone on the device; its memory peak is taken from these."""


class LiveComparison(Task[Compare]):
    """Each arm alone first, until it has settled; then blocks of both, in an order drawn by seed: ABBA or BAAB.

    Of equal arms only the second is alone first: what it needs, both need.

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
        self._delay: Delay | None = None
        self._announced: set[int] = set()

    def _run_on(self, device: DeviceInfo) -> Outcome:
        for config in self._command.arms:
            if config.workload != "train":
                raise BadRequest(what="Not compared", why=f"the workload is {config.workload}; only train is compared")
        self._look_at(device)
        if self._command.arms[0] != self._command.arms[1]:
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
                self._alternate(lambda arm, pair: self._block((first, second)[arm], arm, pair, alone=False))
        # Here only where both do not fit: _alternate ends by raising Cancelled.
        self._alternate(lambda arm, pair: self._rebuilt(arm, pair, device))
        return "stopped"

    def _solo(self, arm: int, device: DeviceInfo, *, alone: bool = True) -> Session:
        """A session of ``arm``, warmed up by the rule and suspended. ``alone``: no other one holds memory."""
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
            while len(steady) < SOLO_STEPS:
                steady += [sample.step_ms for sample in self._step(session, arm) if sample.phase == "steady"]
            if arm == 1 and self._command.delay and self._delay is None:
                self._delay = Delay(session.run.device, self._command.delay * statistics.median(steady))
            self._take(self._command.run_ids[arm], session, all_of_them=True)
            session.suspend()
            opening.pop_all()
        return session

    def _alternate(self, block: Callable[[int, int], None]) -> None:
        draw = random.Random(self._command.seed)
        for pair in itertools.count():
            if pair % 2 == 0:
                order = draw.choice(((0, 1), (1, 0)))
            for arm in order:
                self._config = self._command.arms[arm]
                block(arm, pair)
            order = (order[1], order[0])

    def _rebuilt(self, arm: int, pair: int, device: DeviceInfo) -> None:
        with self._solo(arm, device) as session:
            self._block(session, arm, pair, alone=True)

    def _block(self, session: Session, arm: int, pair: int, *, alone: bool) -> None:
        """``block_steps`` steps or ``block_s`` seconds, whichever is longer, and the event that sums them up."""
        session.resume(pair, alone=alone)
        sleeps = self._sleeps
        counted: list[Sample] = []
        while len(counted) < self._command.block_steps or sum(s.step_ms for s in counted) < self._command.block_s * 1e3:
            if arm == 1 and self._delay is not None:
                self._delay()
            counted += [sample for sample in self._step(session, arm) if sample.phase == "steady"]
        counted += self._take(self._command.run_ids[arm], session, all_of_them=True)
        session.suspend()
        self._emit(
            BlockEnded(
                run_id=self._command.run_ids[arm],
                arm=arm,
                pair=pair,
                steps=len(counted),
                step_ms_median=statistics.median(sample.step_ms for sample in counted),
                sm_clock_mhz=statistics.median(sample.sm_clock_mhz for sample in counted),
                other_processes_bytes=max(sample.other_processes_bytes for sample in counted),
                slept=self._sleeps > sleeps,
            )
        )

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
