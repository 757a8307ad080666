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
from explorer.experiments.compare import Limits
from explorer.experiments.floors import floor_key, known_floor, measure_floor, read_floor, write_floor
from explorer.messages import BlockEnded, Compare, Event, Problem, RunEnded, Stop
from explorer.results.comparison import RatioInterval
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.floor import ASSUMED_FLOOR, AgainstItself, Floor

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, uuid="GPU-1", driver="580.1")
HERE = Environment(devices=(GPU,), platform="Linux", python="3.12", explorer="1", torch="2.11.0", triton="3.6.0")
CONFIG = RunConfig(levels=(("dropout", "off"),))


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


def answers(command: Compare, ratio: float) -> list[Event]:
    """Eight pairs that agree, the second arm ``ratio`` times as fast."""
    return [
        BlockEnded(
            run_id=run_id,
            arm=arm,
            pair=pair,
            steps=10,
            step_ms_median=30.0 if arm == 0 else 30.0 / ratio,
            sm_clock_mhz=float("nan"),
        )
        for pair in range(8)
        for arm, run_id in enumerate(command.run_ids)
    ]


def measured(
    floor: Floor,
    *,
    delay: float,
    repeats: int,
    fails_at: int | None = None,
    stops_at: int | None = None,
    until_s: float = math.inf,
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
        limits=Limits(budget_s=1e6),
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
                    events += failed if len(sent) - 1 == fails_at else answers(order, 1.002)
                elif isinstance(order, Stop):
                    events += [RunEnded(run_id=i, outcome="stopped") for i in sent[-1].run_ids]
            orders = steps.send(events)
    except StopIteration as end:
        return sent, told, end.value


def test_that_several_runs_add_up_to_the_repeats_that_are_asked_for() -> None:
    sent, told, problem = measured(Floor(comparisons=FIVE.comparisons[:2]), delay=0.0, repeats=4)
    assert problem is None
    assert [command.seed for command in sent] == [2, 3]
    assert all(command.arms == (CONFIG, CONFIG) and command.delay == 0 for command in sent)
    assert len({id for command in sent for id in command.run_ids}) == 4
    assert [len(floor.comparisons) for floor in told] == [3, 4]
    assert told[-1].comparisons[-1].interval.ratio == pytest.approx(1.002)
    assert measured(FIVE, delay=0.0, repeats=5) == ([], [], None)


def test_that_delayed_comparisons_are_counted_apart() -> None:
    sent, told, _ = measured(FIVE, delay=0.02, repeats=2)
    assert [command.delay for command in sent] == [0.02, 0.02]
    assert told[-1].comparisons == FIVE.comparisons
    assert len(told[-1].of(0.02)) == 2


def test_that_none_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 10.0)  # ten seconds later at each look: when one begins, and when it has ended
    monkeypatch.setattr(floors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    _, told, problem = measured(Floor(), delay=0.0, repeats=9, until_s=35.0)
    assert problem is None
    assert len(told) == 2  # the third would go from 40 to 50


def test_that_a_failure_and_a_stop_keep_the_comparisons_before_them() -> None:
    sent, told, problem = measured(Floor(), delay=0.0, repeats=4, fails_at=2)
    assert problem is not None
    assert (len(sent), len(told)) == (3, 2)
    sent, told, problem = measured(Floor(), delay=0.0, repeats=4, stops_at=1)
    assert problem is None
    assert (len(sent), len(told)) == (2, 1)
