"""Joules a token against power that is known: the counter is read beside the steps, late, and only now and then."""

import math

import pytest

from explorer.results.energy import joules_per_token
from explorer.results.ring import as_columns
from explorer.results.sample import NAN, Sample
from explorer.results.statistics import summary


def steps(
    *, watts: float, step_ms: float, tokens: int, count: int, start_s: float = 0.0, first: int = 0, block: int = -1
) -> list[Sample]:
    """Steps at constant power; the counter is read each 0.1 s and seen by the steps that end within the next 0.1 s."""
    made = []
    for i in range(count):
        end_s = start_s + (i + 1) * step_ms / 1e3
        read_s = math.floor(end_s * 10) / 10
        seen = read_s >= start_s
        made.append(
            Sample(
                step=first + i,
                segment=0,
                phase="steady",
                time_s=end_s,
                tokens=tokens,
                step_ms=step_ms,
                block=block,
                energy_j=5_000 + watts * read_s if seen else NAN,
                read_at_s=1_000 + read_s,
            )
        )
    return made


@pytest.mark.parametrize("step_ms", [0.4, 43.0, 700.0])
def test_that_power_over_throughput_comes_out(step_ms: float):
    count = math.ceil(5_000 / step_ms)
    columns = as_columns(steps(watts=600.0, step_ms=step_ms, tokens=8192, count=count))
    assert joules_per_token(columns) == pytest.approx(600.0 * step_ms / 1e3 / 8192, rel=1e-9)
    assert summary(columns).joules_per_token == pytest.approx(600.0 * step_ms / 1e3 / 8192, rel=1e-9)


def test_that_what_the_other_arm_used_between_the_blocks_is_left_out():
    a = [
        step
        for block in range(4)
        for step in steps(
            watts=500.0, step_ms=20.0, tokens=100, count=100, start_s=4.0 * block, first=100 * block, block=block
        )
    ]
    # Between A's blocks of 2 s the counter went up by another 1000 W times 2 s.
    jumped = [
        Sample(**{n: getattr(s, n) for n in Sample.__slots__} | {"energy_j": s.energy_j + 1000 * s.block}) for s in a
    ]
    assert joules_per_token(as_columns(jumped)) == pytest.approx(500.0 * 0.020 / 100, rel=1e-9)


def test_that_less_than_a_second_or_no_counter_is_not_told():
    short = steps(watts=600.0, step_ms=50.0, tokens=10, count=19)
    assert math.isnan(joules_per_token(as_columns(short)))
    unread = [Sample(step=i, segment=0, phase="steady", time_s=i, tokens=1, step_ms=1000.0) for i in range(5)]
    assert math.isnan(joules_per_token(as_columns(unread)))
    assert math.isnan(joules_per_token(as_columns([])))
