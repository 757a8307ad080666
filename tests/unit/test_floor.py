"""The floor against scipy's Student t and by simulation; what it makes of comparisons by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from explorer.results.comparison import RatioInterval
from explorer.results.floor import AgainstItself, Floor, floor_of


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_that_the_floor_is_students_prediction_interval_around_1(n: int) -> None:
    logs = np.random.default_rng(n).normal(0, 0.003, n)
    expected = math.exp(stats.t.ppf(0.975, n) * math.sqrt(np.mean(logs**2))) - 1
    assert floor_of(list(np.exp(logs))) == pytest.approx(expected, rel=5e-4)


@pytest.mark.parametrize("n", [1, 5, 20, 60])
def test_that_one_more_comparison_lies_within_the_floor_in_95_of_100_cases(n: int) -> None:
    rng = np.random.default_rng(0)
    logs, more = rng.normal(0, 0.002, (4000, n)), rng.normal(0, 0.002, 4000)
    inside = [abs(one) <= math.log1p(floor_of(list(np.exp(some)))) for some, one in zip(logs, more, strict=True)]
    assert 0.94 <= np.mean(inside) <= 0.965


def test_that_a_floor_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        floor_of([])


def against_itself(ratio: float, reach: float = 0.002, n_pairs: int = 8) -> AgainstItself:
    interval = RatioInterval(ratio=ratio, low=ratio * (1 - reach), high=ratio * (1 + reach), n_pairs=n_pairs)
    return AgainstItself(interval=interval, dropped_blocks=2, at="2026-12-02T10:00:00+00:00")


def test_that_few_comparisons_are_no_measured_floor() -> None:
    equal = tuple(against_itself(1.001) for _ in range(5))
    assert Floor(comparisons=equal[:4]).measured is None
    measured = Floor(comparisons=equal).measured
    assert measured == pytest.approx(2.571 * math.log(1.001), rel=2e-3)


def test_that_verdicts_are_those_of_the_floor_that_holds_now() -> None:
    quiet = tuple(against_itself(ratio) for ratio in (1.001, 0.999, 1.001, 0.999, 1.0, 1.004))
    # The last one's interval leaves out 1: below 5 comparisons 0.5% is assumed, which it does not reach.
    assert Floor(comparisons=quiet[-1:]).verdicts(0) == ["no difference shown"]
    floor = Floor(comparisons=quiet[:5], delayed={0.02: (against_itself(1 / 1.02), against_itself(1.004, 0.02, 8))})
    assert floor.verdicts(0.02) == ["slower", "unsettled"]
    assert floor.verdicts(0.03) == []
    assert floor.measured is not None
    assert floor.measured < 0.003
    assert set(floor.verdicts(0)) == {"no difference shown"}


def test_that_a_floor_survives_json() -> None:
    floor = Floor(comparisons=(against_itself(1.001),), delayed={0.02: (against_itself(0.98),), 0.005: ()})
    assert Floor.from_dict(json.loads(json.dumps(floor.to_dict()))) == floor
    for wrong in ({}, {"comparisons": [{}], "delayed": {}}, {"comparisons": [], "delayed": 3}):
        with pytest.raises(ValueError, match="cannot be read"):
            Floor.from_dict(wrong)
