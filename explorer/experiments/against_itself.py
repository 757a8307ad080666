"""Comparisons of a configuration with itself: several of one pair of arms, the second delayed or not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from explorer.experiments.compare import Limits, block_of, too_few
from explorer.experiments.single import STOP_WITHIN_S
from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import BlockEnded, Compare, Problem, RunEnded, Stop, WorkerLost
from explorer.results.blocks import Blocks, EndedBy
from explorer.results.floor import ASSUMED_FLOOR, AgainstItself


class Comparisons:
    """One comparison for each delay of ``command``, made of the blocks as they come; then the next ones.

    Each ends by the rule or at ``limits`` for itself, as if it were alone; the next ones begin when all have ended.
    """

    def __init__(self, command: Compare, limits: Limits, on_pair: Callable[[Blocks], None]) -> None:
        self._delays, self._limits, self._on_pair = command.delays, limits, on_pair
        self._begin()

    def _begin(self) -> None:
        self._blocks = {delay: Blocks() for delay in self._delays}
        self._ended: dict[float, EndedBy] = {}
        self._deadline_s: float | None = None

    def take(self, event: BlockEnded) -> Mapping[float, AgainstItself] | None:
        """One comparison a delay, once the block of ``event`` ends the last of them.

        Raises:
            RuntimeError: there are too few blocks that count for a ratio.
        """
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._limits.budget_s
        for arm, delay in enumerate(self._delays, 1):
            if event.arm in (0, arm) and delay not in self._ended:
                self._add(delay, min(event.arm, 1), event)
        if len(self._ended) < len(self._delays):
            return None
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        found = {}
        for delay, blocks in self._blocks.items():
            result = blocks.result(floor=ASSUMED_FLOOR, floor_measured=False, ended_by=self._ended[delay])
            if result is None:
                raise RuntimeError(too_few(blocks, self._limits))
            found[delay] = AgainstItself.of(result, at=at)
        self._begin()  # what is left of this pair finds no partner any more
        return found

    def _add(self, delay: float, arm: int, event: BlockEnded) -> None:
        blocks = self._blocks[delay]
        whole = len(blocks.pairs)
        blocks.add(arm, event.pair, block_of(event))
        if len(blocks.pairs) == whole:
            return
        self._on_pair(blocks)
        assert self._deadline_s is not None
        if blocks.settled():
            self._ended[delay] = "settled"
        elif time.monotonic() > self._deadline_s or len(blocks.pairs) >= (self._limits.pairs or math.inf):
            self._ended[delay] = "budget"


def compare_with_itself(
    command: Compare,
    *,
    limits: Limits,
    asked_to_stop: AskedToStop,
    on_pair: Callable[[Blocks], None],
    on_comparisons: Callable[[Mapping[float, AgainstItself]], bool],
) -> Steps[Problem | None]:
    """Measure until ``on_comparisons``, which hears of each round of comparisons, says that no more are wanted.

    The worker must be ready. Returns why it failed, if it did. What has begun when an end is asked for is dropped.
    """
    comparisons = Comparisons(command, limits, on_pair)
    problem: Problem | None = None
    stopped_at_s: float | None = None
    orders: tuple[Order, ...] = (command,)
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case BlockEnded() if stopped_at_s is None:
                    try:
                        found = comparisons.take(event)
                    except RuntimeError as error:
                        problem = Problem(what="Not measured", why=str(error))
                    else:
                        if found is None or on_comparisons(found):
                            continue
                    stopped_at_s = time.monotonic()
                    orders = (Stop(run_id=command.run_ids[0]),)
                case RunEnded() if event.run_id == command.run_ids[1] or event.problem is not None:
                    return event.problem or problem
                case WorkerLost():
                    return Problem(what="The worker died", why=event.last_words or f"status {event.exit_code}")
                case _:
                    pass
        if stopped_at_s is None:
            if asked_to_stop():
                stopped_at_s = time.monotonic()
                orders = (Stop(run_id=command.run_ids[0]),)
        elif time.monotonic() > stopped_at_s + STOP_WITHIN_S:
            return Problem(what="Not measured", why=f"the worker did not stop within {STOP_WITHIN_S:g} s")
