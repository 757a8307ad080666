"""The blocks of a comparison: which of them count, and what they come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from explorer.results.comparison import RatioInterval, Verdict, enough, ratio_interval, verdict

EndedBy = Literal["settled", "budget", "stopped"]

CLOCK_DROP = 0.03
"""A block whose clock is lower than its neighbours' median by more than this is disturbed: throttled, or shared."""
NEIGHBOURS = 4
"""Blocks of the same arm before a block, and as many after it, that it is judged against."""
OTHERS_ROSE_BYTES = 128 * 2**20
"""A block in which other processes held so much more than in its neighbours is disturbed: one has come. The smallest
that computes holds some 300 MiB; what a desktop's windows hold goes up and down by tens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What is kept of one block."""

    step_ms: float
    """Median of its steps."""
    sm_clock_mhz: float = math.nan
    other_processes_bytes: int = -1
    """The most that other processes held of the device; -1: not known."""
    slept: bool = False
    """Whether the machine slept within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What a comparison showed. ``speedup`` is A's step time over B's: above 1, B is faster."""

    interval: RatioInterval
    verdict: Verdict
    floor: float
    """What this machine shows when nothing differs, as a share."""
    floor_measured: bool
    a_step_ms: float
    b_step_ms: float
    dropped_blocks: int
    ended_by: EndedBy


@dataclass(slots=True)
class Blocks:
    """The blocks so far, by arm (0: A, 1: B) and pair."""

    _by_arm: tuple[dict[int, Block], dict[int, Block]] = field(default_factory=lambda: ({}, {}))

    def add(self, arm: int, pair: int, block: Block) -> None:
        self._by_arm[arm][pair] = block

    def of_arm(self, arm: int) -> Mapping[int, Block]:
        """The blocks of one arm, by pair, disturbed ones and those without a partner included."""
        return self._by_arm[arm]

    @property
    def pairs(self) -> Sequence[tuple[Block, Block]]:
        """Whole pairs, oldest first, disturbed ones included."""
        return [pair for _, pair in self._whole()]

    @property
    def dropped(self) -> frozenset[int]:
        """Numbers of the whole pairs of which a block was disturbed.

        Judged by what changed against the neighbouring blocks of the same arm: arms may run at different clocks, a
        power cap that is set in normal running lowers nobody's clock against its neighbours, and a card that has
        become warm for good is no disturbance, though its first slower blocks are.
        """
        a, b = self._by_arm
        return frozenset((_disturbed(a) | _disturbed(b)) & a.keys() & b.keys())

    @property
    def counted(self) -> Sequence[tuple[Block, Block]]:
        """Whole pairs of which neither block was disturbed, oldest first."""
        dropped = self.dropped
        return [pair for number, pair in self._whole() if number not in dropped]

    def times(self) -> tuple[list[float], list[float]]:
        """Block medians of A and of B, in ms, of the pairs that count."""
        pairs = self.counted
        return [a.step_ms for a, _ in pairs], [b.step_ms for _, b in pairs]

    def interval(self) -> RatioInterval | None:
        """The ratio of the pairs that count, or None while there are fewer than two."""
        a, b = self.times()
        return ratio_interval(a, b, seed=0) if len(a) >= 2 else None

    def settled(self) -> bool:
        """Whether measuring may end by the rule."""
        interval = self.interval()
        return interval is not None and enough(interval)

    def result(self, *, floor: float, floor_measured: bool, ended_by: EndedBy) -> ComparisonResult | None:
        """What it all comes to, or None with fewer than two pairs that count."""
        interval = self.interval()
        if interval is None:
            return None
        a, b = self.times()
        return ComparisonResult(
            interval=interval,
            verdict=verdict(interval, floor=floor),
            floor=floor,
            floor_measured=floor_measured,
            a_step_ms=statistics.median(a),
            b_step_ms=statistics.median(b),
            dropped_blocks=2 * (len(self.pairs) - len(a)),
            ended_by=ended_by,
        )

    def _whole(self) -> Sequence[tuple[int, tuple[Block, Block]]]:
        """Each pair of which both blocks are there, with its number, oldest first."""
        a, b = self._by_arm
        return [(number, (a[number], b[number])) for number in sorted(a.keys() & b.keys())]


def _disturbed(arm: Mapping[int, Block]) -> set[int]:
    """Pairs in which the machine slept, this arm's clock fell below that of its neighbours, or another process came.

    What is not known (a clock of NaN, memory of -1) disturbs nothing.
    """
    found = set()
    order = sorted(arm)
    for place, pair in enumerate(order):
        near = order[max(0, place - NEIGHBOURS) : place] + order[place + 1 : place + 1 + NEIGHBOURS]
        clocks = [arm[other].sm_clock_mhz for other in near]
        others = [arm[other].other_processes_bytes for other in near if arm[other].other_processes_bytes >= 0]
        fell = bool(clocks) and arm[pair].sm_clock_mhz < (1 - CLOCK_DROP) * statistics.median(clocks)
        rose = bool(others) and arm[pair].other_processes_bytes > statistics.median(others) + OTHERS_ROSE_BYTES
        if arm[pair].slept or fell or rose:
            found.add(pair)
    return found


def in_words(result: ComparisonResult, *, a: str, b: str) -> str:
    """One sentence: ``B is 1.49x as fast as A (1.47-1.51): faster``, with what limits it."""
    i = result.interval
    floor = f"floor {result.floor:.2%}{'' if result.floor_measured else ', assumed'}"
    dropped = f", {result.dropped_blocks} disturbed blocks dropped" if result.dropped_blocks else ""
    return (
        f"{b} against {a}: {result.verdict}, {i.ratio:.3f}x ({i.low:.3f}-{i.high:.3f}), "
        f"{result.b_step_ms:.2f} ms against {result.a_step_ms:.2f} ms; "
        f"{i.n_pairs} pairs, {floor}{dropped}, ended: {result.ended_by}"
    )


def comparison_row(result: ComparisonResult) -> Mapping[str, str | int | float | bool]:
    """The columns that a comparison has in CSV and JSON."""
    i = result.interval
    return {
        "speedup": i.ratio,
        "ci_low": i.low,
        "ci_high": i.high,
        "verdict": result.verdict,
        "n_pairs": i.n_pairs,
        "floor": result.floor,
        "floor_measured": result.floor_measured,
        "dropped_blocks": result.dropped_blocks,
        "ended_by": result.ended_by,
        "a_step_ms_median": result.a_step_ms,
        "b_step_ms_median": result.b_step_ms,
    }
