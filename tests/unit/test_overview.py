"""Runs side by side, worked out by hand and by brute force."""

from __future__ import annotations

import math
import random

import pytest

from explorer.config import RunConfig
from explorer.results.log import RunLog
from explorer.results.overview import Entry, entry, not_alike, pareto, ratio
from explorer.results.sample import Sample, Segment

GIB = 2**30


def made(run_id: int, rate: float, memory_gib: float, **fields: object) -> Entry:
    values: dict[str, object] = {
        "run_id": run_id,
        "segment": 0,
        "label": f"run {run_id}",
        "workload": "train",
        "machine": None,
        "tokens_per_s": rate,
        "tokens_per_s_p5": rate,
        "tokens_per_s_p95": rate,
        "settled": True,
        "memory_gib": memory_gib,
        "loss": 4.0,
    }
    return Entry(**{**values, **fields})  # type: ignore[arg-type]


def test_that_the_front_holds_exactly_those_that_nothing_beats() -> None:
    draw = random.Random(5)
    for _ in range(50):
        entries = [made(i, draw.randint(1, 9), draw.randint(1, 9)) for i in range(8)]
        wanted = {
            (e.tokens_per_s, e.memory_gib)
            for e in entries
            if not any(
                (o.tokens_per_s >= e.tokens_per_s and o.memory_gib <= e.memory_gib)
                and (o.tokens_per_s, o.memory_gib) != (e.tokens_per_s, e.memory_gib)
                for o in entries
            )
        }
        front = pareto(entries)
        assert {(e.tokens_per_s, e.memory_gib) for e in front} == wanted
        assert len(front) == len(wanted)
        assert [e.memory_gib for e in front] == sorted(e.memory_gib for e in front)


def test_that_what_was_not_measured_is_on_no_front() -> None:
    assert pareto([made(1, math.nan, 1.0), made(2, 5.0, math.nan), made(3, 1.0, 9.0)]) == [made(3, 1.0, 9.0)]
    assert pareto([]) == []


def test_that_an_entry_is_what_its_samples_come_to() -> None:
    log = RunLog()
    config = RunConfig(batch=2, seq=64)
    log.begin_run(4, config)
    log.begin_segment(4, config, Segment(index=0, first_step=0, changes=(), started_at="2026-01-01T00:00:00Z"))
    changed = config.with_level("attention", "sdpa")
    log.begin_segment(4, changed, Segment(index=1, first_step=9, changes=("a",), started_at="2026-01-01T00:01:00Z"))
    log.append(
        4,
        [
            Sample(
                step=9 + i,
                segment=1,
                phase="steady",
                time_s=i * 0.02,
                tokens=128,
                step_ms=20.0,
                loss=3.0 - i,
                peak_allocated_bytes=(3 + i % 2) * GIB,
            )
            for i in range(3)
        ],
    )
    toggles = {"precision": "fp32", "attention": "naive"}
    one = entry(log, 4, 1, toggles=toggles)
    assert (one.name, one.label) == ("4.2", "+ attention sdpa")
    assert one.tokens_per_s == pytest.approx(6400.0)
    assert (one.memory_gib, one.loss) == (4.0, 1.0)
    nothing = entry(log, 4, 0, toggles=toggles)
    assert math.isnan(nothing.tokens_per_s)
    assert math.isnan(nothing.memory_gib)


def test_that_ratios_of_nothing_are_nothing() -> None:
    assert ratio(6.0, 4.0) == 1.5
    assert math.isnan(ratio(1.0, 0.0))
    assert math.isnan(ratio(math.nan, 2.0))


def test_that_other_workloads_and_machines_are_told() -> None:
    assert not_alike([made(1, 1, 1, machine="H200, a"), made(2, 1, 1)]) == []
    others = [made(1, 1, 1, machine="H200, a"), made(2, 1, 1, machine="H200, b", workload="generate")]
    assert not_alike(others) == ["workload", "machine"]
