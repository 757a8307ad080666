"""Floors: what they are kept for, and how they are measured, against a worker that answers by script."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from explorer.config import RunConfig
from explorer.experiments import floors
from explorer.experiments.against_itself import Comparisons
from explorer.experiments.compare import Limits
from explorer.experiments.floors import floor_key, known_floor, measure_floor, read_floor, write_floor
from explorer.messages import BlockEnded, Compare, Event, Problem, RunEnded, Stop
from explorer.results.comparison import RatioInterval
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.floor import ASSUMED_FLOOR, AgainstItself, Floor

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, uuid="GPU-1", driver="580.1")
HERE = Environment(devices=(GPU,), platform="Linux", python="3.12", explorer="1", torch="2.11.0", triton="3.6.0")
CONFIG = RunConfig(levels=(("dropout", "off"),))
PATIENT = Limits(budget_s=1e6)


def against_itself(ratio: float) -> AgainstItself:
    interval = RatioInterval(ratio=ratio, low=ratio - 0.001, high=ratio + 0.001, n_pairs=8)
    return AgainstItself(interval=interval, dropped_blocks=0, at="2026-12-02T10:00:00+00:00")


FIVE = Floor(comparisons=tuple(against_itself(1.0 + n / 1e4) for n in range(1, 6)))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_that_a_floor_holds_for_its_device_versions_and_configuration_only() -> None:
    key = floor_key(CONFIG, HERE, block_s=2.0)
    write_floor(key, FIVE)
    assert read_floor(key) == FIVE
    # The same work, however it was asked for.
    assert read_floor(floor_key(dataclasses.replace(CONFIG, seed=3, device="cuda:0"), HERE, block_s=2.0)) == FIVE
    others = [
        floor_key(dataclasses.replace(CONFIG, batch=16), HERE, block_s=2.0),
        floor_key(CONFIG.with_level("attention", "sdpa"), HERE, block_s=2.0),
        floor_key(CONFIG, HERE, block_s=1.0),
        floor_key(CONFIG, HERE, block_s=2.0, block_steps=3),
        floor_key(CONFIG, dataclasses.replace(HERE, torch="2.12.0"), block_s=2.0),
        floor_key(CONFIG, dataclasses.replace(HERE, devices=(dataclasses.replace(GPU, uuid="GPU-2"),)), block_s=2.0),
        floor_key(CONFIG, dataclasses.replace(HERE, devices=(dataclasses.replace(GPU, driver="9"),)), block_s=2.0),
    ]
    for other in others:
        assert read_floor(other) == Floor()


def test_that_a_file_that_cannot_be_read_counts_as_none(own_cache: Path) -> None:
    key = floor_key(CONFIG, HERE, block_s=2.0)
    write_floor(key, FIVE)
    (file,) = own_cache.rglob("*.json")
    file.write_text(file.read_text()[:-30])
    assert read_floor(key) == Floor()


def test_that_a_comparison_takes_the_larger_floor_of_its_arms() -> None:
    other = CONFIG.with_level("precision", "bf16")
    assert known_floor((CONFIG, other), HERE, block_s=2.0) == (ASSUMED_FLOOR, False)
    write_floor(floor_key(CONFIG, HERE, block_s=2.0), FIVE)
    assert known_floor((CONFIG, other), HERE, block_s=2.0) == (FIVE.measured, True)
    noisy = Floor(comparisons=tuple(against_itself(1.01) for _ in range(5)))
    write_floor(floor_key(other, HERE, block_s=2.0), noisy)
    assert known_floor((CONFIG, other), HERE, block_s=2.0) == (noisy.measured, True)


def answers(command: Compare, ratio: float, rounds: int = 9) -> list[Event]:
    """Pairs that agree, eight a comparison, the second arm ``ratio`` times as fast where it is not delayed."""
    return [
        BlockEnded(
            run_id=command.run_ids[min(arm, 1)],
            arm=arm,
            pair=pair,
            steps=10,
            step_ms_median=30.0 * (1 + late) / (ratio if arm else 1.0),
            sm_clock_mhz=float("nan"),
        )
        for pair in range(8 * rounds)
        for arm, late in enumerate((0.0, *command.delays))
    ]


def measured(
    floor: Floor,
    *,
    delay: float,
    repeats: int,
    fails_at: int | None = None,
    stops_at: int | None = None,
    until_s: float = math.inf,
    limits: Limits = PATIENT,
) -> tuple[list[Compare], list[Floor], Problem | None]:
    """What was sent, each floor that was told of, and the problem."""
    sent: list[Compare] = []
    told: list[Floor] = []
    steps = measure_floor(
        CONFIG,
        floor,
        delay=delay,
        repeats=repeats,
        block_s=2.0,
        limits=limits,
        download=False,
        until_s=until_s,
        asked_to_stop=lambda: len(sent) - 1 == stops_at,
        on_pair=lambda blocks: None,
        on_comparison=told.append,
    )
    try:
        orders = next(steps)
        while True:
            events: list[Event] = []
            for order in orders:
                if isinstance(order, Compare):
                    sent.append(order)
                    problem = Problem(what="Out of memory", why="too much")
                    failed = [RunEnded(run_id=i, outcome="failed", problem=problem) for i in order.run_ids]
                    events += (
                        failed
                        if len(sent) - 1 == fails_at
                        else []
                        if len(sent) - 1 == stops_at
                        else answers(order, 1.002)
                    )
                elif isinstance(order, Stop):
                    events += [RunEnded(run_id=i, outcome="stopped") for i in sent[-1].run_ids]
            orders = steps.send(events)
    except StopIteration as end:
        return sent, told, end.value


def test_that_several_runs_add_up_to_the_repeats_that_are_asked_for() -> None:
    sent, told, problem = measured(Floor(comparisons=FIVE.comparisons[:2]), delay=0.0, repeats=4)
    assert problem is None
    (command,) = sent
    assert (command.seed, command.arms, command.delays) == (2, (CONFIG, CONFIG), (0.0,))
    assert [len(floor.comparisons) for floor in told] == [3, 4]
    assert told[-1].comparisons[-1].interval.ratio == pytest.approx(1.002)
    assert told[-1].comparisons[-1].interval.n_pairs == 8
    assert measured(FIVE, delay=0.0, repeats=5) == ([], [], None)


def test_that_arms_are_built_anew_after_five_comparisons_in_another_order() -> None:
    sent, told, _ = measured(Floor(), delay=0.0, repeats=11)
    assert [command.seed for command in sent] == [0, 5, 10]
    assert len({id for command in sent for id in command.run_ids}) == 6
    assert [len(floor.comparisons) for floor in told] == list(range(1, 12))


def test_that_delayed_comparisons_are_made_beside_those_of_equal_arms_and_counted_apart() -> None:
    sent, told, _ = measured(Floor(), delay=0.02, repeats=2)
    assert [command.delays for command in sent] == [(0.0, 0.02)]
    assert [one.interval.ratio for one in told[-1].comparisons] == pytest.approx([1.002] * 2)
    assert [one.interval.ratio for one in told[-1].of(0.02)] == pytest.approx([1.002 / 1.02] * 2)


def test_that_only_the_kind_that_is_short_of_comparisons_is_measured() -> None:
    sent, told, _ = measured(FIVE, delay=0.02, repeats=3)
    assert [command.delays for command in sent] == [(0.02,)]
    assert told[-1].comparisons == FIVE.comparisons
    assert len(told[-1].of(0.02)) == 3
    sent, told, _ = measured(Floor(comparisons=FIVE.comparisons[:4]), delay=0.02, repeats=5)
    assert [command.delays for command in sent] == [(0.0, 0.02), (0.02,)]
    assert (len(told[-1].comparisons), len(told[-1].of(0.02))) == (5, 5)


def test_that_each_kind_ends_by_the_rule_for_itself_and_the_next_begin_with_a_whole_pair() -> None:
    """The delayed arm is unsteady for nine pairs: its first comparison takes longer than that of equal arms."""

    def block(arm: int, pair: int, step_ms: float) -> BlockEnded:
        return BlockEnded(run_id=2, arm=arm, pair=pair, steps=9, step_ms_median=step_ms, sm_clock_mhz=math.nan)

    command = Compare(run_ids=(1, 2), arms=(CONFIG, CONFIG), delays=(0.0, 0.02))
    comparisons = Comparisons(command, Limits(budget_s=1e6, pairs=12), lambda blocks: None)
    found = []
    for pair in range(20):
        unsteady = 0.3 * (pair % 2) if pair < 12 else 0.0
        for arm, step_ms in ((2, 30.6 + 30 * unsteady), (0, 30.0), (1, 30.0)):
            made = comparisons.take(block(arm, pair, step_ms))
            if made is not None:
                found.append((pair, arm, made))
    (first_pair, first_arm, first), (second_pair, second_arm, second) = found
    assert (first_pair, first_arm) == (11, 0), "equal arms ended at the eighth pair, the unsteady kind at its limit"
    assert (first[0.0].interval.n_pairs, first[0.02].interval.n_pairs) == (8, 12)
    assert (second_pair, second_arm) == (19, 1), "the block left over from the twelfth pair is in no comparison"
    assert (second[0.0].interval.n_pairs, second[0.02].interval.n_pairs) == (8, 8)
    assert second[0.02].interval.ratio == pytest.approx(1 / 1.02)


def test_that_two_comparisons_with_too_few_blocks_say_so() -> None:
    problem = measured(Floor(), delay=0.0, repeats=1, limits=Limits(budget_s=1e-9))[2]
    assert problem is not None
    assert "pairs of blocks that count in 1e-09 s: 1" in problem.why


def test_that_none_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 10.0)  # ten seconds later at each look: when one begins, and when it has ended
    monkeypatch.setattr(floors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    sent, told, problem = measured(Floor(), delay=0.0, repeats=9, until_s=35.0)
    assert problem is None
    assert (len(sent), len(told)) == (1, 3)  # the fourth would go from 30 to 40


def test_that_a_failure_and_a_stop_keep_the_comparisons_before_them() -> None:
    sent, told, problem = measured(Floor(), delay=0.0, repeats=14, fails_at=2)
    assert problem is not None
    assert (len(sent), len(told)) == (3, 10)
    sent, told, problem = measured(Floor(), delay=0.0, repeats=14, stops_at=1)
    assert problem is None
    assert (len(sent), len(told)) == (2, 5)
