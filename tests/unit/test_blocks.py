from __future__ import annotations

import json
import math

import pytest

from explorer.results.blocks import Block, Blocks, comparison_row, in_words
from explorer.results.comparison_record import block_from_dict, block_to_dict


def blocks_of(a: list[float], b: list[float], clocks: dict[tuple[int, int], float] | None = None) -> Blocks:
    blocks = Blocks()
    for arm, times in enumerate((a, b)):
        for pair, step_ms in enumerate(times):
            clock = 1980.0 if clocks is None else clocks.get((arm, pair), 1980.0)
            blocks.add(arm, pair, Block(step_ms=step_ms, sm_clock_mhz=clock))
    return blocks


def test_that_the_ratio_is_of_the_medians_of_whole_pairs() -> None:
    blocks = blocks_of([30.0, 31.0, 29.0, 500.0], [20.0, 20.5, 19.5])  # A's last block has no partner yet
    interval = blocks.interval()
    assert interval is not None
    assert interval.n_pairs == 3
    assert interval.ratio == pytest.approx(30.0 / 20.0)


def test_that_a_block_at_a_lower_clock_is_dropped_with_its_pair_and_counted() -> None:
    a, b = [30.0] * 9, [20.0] * 8 + [40.0]
    blocks = blocks_of(a, b, {(1, 8): 1980.0 * 0.96})
    assert blocks.dropped == {8}
    result = blocks.result(floor=0.005, floor_measured=True, ended_by="settled")
    assert result is not None
    assert result.interval.n_pairs == 8
    assert result.dropped_blocks == 2
    assert result.b_step_ms == 20.0
    assert "2 disturbed blocks dropped" in in_words(result, a="A", b="B")


def test_that_an_arm_with_a_lower_clock_of_its_own_is_not_disturbed() -> None:
    blocks = blocks_of([30.0] * 8, [20.0] * 8, {(1, pair): 1700.0 for pair in range(8)})
    assert len(blocks.counted) == 8


def test_that_a_card_that_stays_slower_is_not_disturbed_but_its_first_slower_blocks_are() -> None:
    clocks = {(arm, pair): 1980.0 if pair < 8 else 1700.0 for arm in (0, 1) for pair in range(16)}
    blocks = blocks_of([30.0] * 8 + [35.0] * 8, [20.0] * 8 + [23.0] * 8, clocks)
    kept = [a.sm_clock_mhz for a, _ in blocks.counted]
    assert kept.count(1980.0) == 8
    assert 6 <= kept.count(1700.0) < 8


def test_that_a_short_drop_is_judged_against_the_blocks_around_it() -> None:
    # The card warms up for good later on, to a clock below that of the drop: the blocks around the drop were faster.
    clocks = {(0, pair): 1980.0 if pair < 10 else 1700.0 for pair in range(30)} | {(0, 4): 1880.0, (0, 5): 1880.0}
    blocks = blocks_of([float(pair) + 30 for pair in range(30)], [20.0] * 30, clocks)
    times = {a.step_ms for a, _ in blocks.counted}
    assert not times & {34.0, 35.0}
    assert {33.0, 36.0, 50.0} <= times


def test_that_blocks_into_which_another_process_came_are_dropped_but_not_those_beside_one_that_stays() -> None:
    def held_by_others(sizes_mib: list[int]) -> Blocks:
        blocks = Blocks()
        for pair, size_mib in enumerate(sizes_mib):
            for arm in (0, 1):
                others = size_mib * 2**20 if arm == 0 and size_mib >= 0 else -1
                blocks.add(arm, pair, Block(step_ms=30.0, sm_clock_mhz=1980.0, other_processes_bytes=others))
        return blocks

    assert held_by_others([0] * 6 + [529] + [0] * 6).dropped == {6}
    assert held_by_others([3072] * 9).dropped == frozenset(), "it is there all the time"
    assert held_by_others([500, 540, 510, 560, 520, 500]).dropped == frozenset(), "a desktop's windows"
    assert held_by_others([-1] * 4 + [529] + [-1] * 4).dropped == frozenset(), "the neighbours do not tell"


def test_that_a_block_in_which_the_machine_slept_is_dropped() -> None:
    blocks = blocks_of([30.0] * 8, [20.0] * 8)
    blocks.add(1, 3, Block(step_ms=20.0, slept=True))
    assert blocks.dropped == {3}
    kept = block_from_dict(json.loads(json.dumps(block_to_dict(blocks.of_arm(1)[3]))))
    assert (kept.slept, kept.other_processes_bytes) == (True, -1)
    assert block_from_dict({"step_ms": 20.0, "sm_clock_mhz": None}).slept is False, "kept before it was told"


def test_that_clocks_that_are_not_known_drop_nothing() -> None:
    blocks = blocks_of([30.0] * 3, [20.0] * 3, {(arm, pair): math.nan for arm in (0, 1) for pair in range(3)})
    assert len(blocks.counted) == 3


@pytest.mark.parametrize(
    ("b", "floor", "verdict"),
    [
        ([20.0 + n / 100 for n in range(8)], 0.005, "faster"),
        ([40.0 + n / 100 for n in range(8)], 0.005, "slower"),
        ([30.0 + n / 100 for n in range(8)], 0.005, "no difference shown"),
        ([29.5 + n / 100 for n in range(8)], 0.05, "no difference shown"),
        ([20.0, 40.0, 20.0, 40.0, 25.0, 35.0, 30.0, 30.0], 0.005, "unsettled"),
        ([20.0] * 7, 0.005, "unsettled"),
    ],
)
def test_that_the_verdict_is_of_b_against_a(b: list[float], floor: float, verdict: str) -> None:
    blocks = blocks_of([30.0 + n / 100 for n in range(8)], b)
    result = blocks.result(floor=floor, floor_measured=False, ended_by="budget")
    assert result is not None
    assert result.verdict == verdict
    row = comparison_row(result)
    assert row["verdict"] == verdict
    assert row["ci_low"] <= row["speedup"] <= row["ci_high"]


def test_that_fewer_than_two_pairs_come_to_nothing() -> None:
    blocks = blocks_of([30.0], [20.0])
    assert blocks.interval() is None
    assert not blocks.settled()
    assert blocks.result(floor=0.005, floor_measured=True, ended_by="stopped") is None
