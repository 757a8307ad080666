"""Compare two configurations: drive the worker's blocks until the interval is narrow or the time is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from explorer.experiments.single import STOP_WITHIN_S
from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import BlockEnded, Compare, Problem, RunEnded, Samples, Stop, WorkerLost
from explorer.results.blocks import Block, Blocks, EndedBy
from explorer.results.energy import joules_per_token
from explorer.results.ring import SampleColumns
from explorer.results.sample import NAN

BLOCK_S = 2.0
"""Least seconds a block, unless another length is asked for."""
BLOCK_STEPS = 10
"""Least steps a block, likewise: where a step takes most of a second, three make a block that is long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was measured of two arms, and why no more."""

    blocks: Blocks
    ended_by: EndedBy
    peak_bytes: tuple[int, int]
    """Of each arm: the largest sum of live tensors within a step, alone on the device; -1: not measured."""
    joules_per_token: tuple[float, float] = (NAN, NAN)
    """Of each arm, over whole blocks; NaN: not measured."""
    problem: Problem | None = None
    """Why it failed."""
    worker_usable: bool = True
    """Whether the worker is there and free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When measuring ends though the interval is not narrow yet.

    Raises:
        ValueError: a limit that leaves nothing to measure.
    """

    budget_s: float = 60.0
    """After the first block."""
    pairs: int | None = None
    """Pairs of blocks; None: as the time allows."""

    def __post_init__(self) -> None:
        if not self.budget_s > 0:
            raise ValueError(f"budget_s is {self.budget_s}; it must be above 0")
        if self.pairs is not None and self.pairs < 2:
            raise ValueError(f"pairs is {self.pairs}; it must be at least 2")


def compare(
    command: Compare, *, limits: Limits, asked_to_stop: AskedToStop, on_pair: Callable[[Blocks], None]
) -> Steps[Compared]:
    """Measure until the rule is met or ``limits`` are reached. The worker must be ready.

    ``on_pair`` hears the blocks so far after each pair.
    """
    blocks = Blocks()
    peaks = dict.fromkeys(command.run_ids, -1)
    in_blocks = {run_id: SampleColumns() for run_id in command.run_ids}
    ended_by: EndedBy = "stopped"
    deadline_s: float | None = None
    asked_at_s: float | None = None
    settled = False

    def outcome(problem: Problem | None = None, *, usable: bool = True) -> Compared:
        first, second = command.run_ids
        if command.arms[0] == command.arms[1]:
            peaks[first] = peaks[second]  # equal arms are not each alone on the device
        return Compared(
            blocks=blocks,
            ended_by=ended_by,
            peak_bytes=(peaks[first], peaks[second]),
            joules_per_token=(
                joules_per_token(in_blocks[first].columns()),
                joules_per_token(in_blocks[second].columns()),
            ),
            problem=problem,
            worker_usable=usable,
        )

    orders: Sequence[Order] = (command,)
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case Samples() if event.run_id in peaks:
                    steady = (s.peak_allocated_bytes for s in event.samples if s.phase == "steady")
                    peaks[event.run_id] = max(peaks[event.run_id], *steady, -1)
                    in_blocks[event.run_id].append([s for s in event.samples if s.block >= 0])
                case BlockEnded():
                    whole = len(blocks.pairs)
                    blocks.add(event.arm, event.pair, block_of(event))
                    if len(blocks.pairs) > whole:
                        settled = blocks.settled()
                        on_pair(blocks)
                    if deadline_s is None:
                        deadline_s = time.monotonic() + limits.budget_s
                case RunEnded() if event.run_id == command.run_ids[1] or (
                    event.run_id == command.run_ids[0] and event.problem is not None
                ):
                    return outcome(event.problem, usable=event.problem is None or not event.problem.spent)
                case WorkerLost():
                    why = event.last_words or f"status {event.exit_code}"
                    return outcome(Problem(what="The worker died", why=why), usable=False)
                case _:
                    pass
        now_s = time.monotonic()
        if asked_at_s is None:
            spent = deadline_s is not None and now_s > deadline_s
            spent = spent or (limits.pairs is not None and len(blocks.pairs) >= limits.pairs)
            if settled or spent or asked_to_stop():
                ended_by = "settled" if settled else "budget" if spent else "stopped"
                asked_at_s = now_s
                orders = (Stop(run_id=command.run_ids[0]),)
        elif now_s > asked_at_s + STOP_WITHIN_S:
            return outcome(usable=False)


def too_few(blocks: Blocks, limits: Limits) -> str:
    """Why ``blocks``, all that ``limits`` left room for, make no ratio."""
    pairs = len(blocks.counted)
    return f"pairs of blocks that count in {limits.budget_s:g} s: {pairs}; a ratio needs 2: give a longer budget"


def block_of(event: BlockEnded) -> Block:
    """What is kept of the block that ``event`` ends."""
    return Block(
        step_ms=event.step_ms_median,
        sm_clock_mhz=event.sm_clock_mhz,
        other_processes_bytes=event.other_processes_bytes,
        slept=event.slept,
    )
