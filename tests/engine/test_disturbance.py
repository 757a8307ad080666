"""Sleep and falls of the clock, told once each, from readings that are known."""

import pytest

from explorer.engine.disturbance import ClockWatch, SleepWatch, slept_s
from explorer.results.sample import Sample


def samples(
    clocks: list[float], *, first: int = 0, segment: int = 0, phase: str = "steady", each: int = 3
) -> list[Sample]:
    """``each`` steps for every reading of the clock: readings come more seldom than steps."""
    return [
        Sample(
            step=(first + i) * each + j,
            segment=segment,
            phase=phase,
            time_s=0.0,
            tokens=1,
            step_ms=30.0,
            sm_clock_mhz=clock,
            temperature_c=84.0,
            power_w=690.0,
            read_at_s=(first + i) * 0.1,
        )
        for i, clock in enumerate(clocks)
        for j in range(each)
    ]


def test_that_a_fall_that_lasts_is_told_once_with_step_and_clocks():
    watch = ClockWatch()
    assert watch.look(samples([1980.0] * 30)) == []
    told = watch.look(samples([1700.0] * 40, first=30))
    assert told == ["step 102: the clock fell from 1980 to 1700 MHz, at 84 °C and 690 W"]


@pytest.mark.parametrize("clocks", [[1700.0] * 4, [1925.0] * 40, [1700.0, 1980.0] * 20])
def test_that_short_dips_and_small_ones_are_not_told(clocks: list[float]):
    watch = ClockWatch()
    watch.look(samples([1980.0] * 30))
    assert watch.look(samples([*clocks, 1980.0], first=30)) == []


def test_that_a_second_fall_after_recovery_is_told():
    watch = ClockWatch()
    watch.look(samples([1980.0] * 30))
    assert len(watch.look(samples([1700.0] * 9 + [1980.0] * 9 + [1700.0] * 9, first=30))) == 2


def test_that_falls_are_told_ten_times_at_most():
    watch = ClockWatch()
    watch.look(samples([1980.0] * 30))
    told = watch.look(samples(([1700.0] * 9 + [1980.0] * 9) * 15, first=30))
    assert len(told) == 10
    assert "further falls are not told" in told[-1]
    assert "further" not in told[-2]


def test_that_another_segment_or_warm_up_has_its_own_usual_clock():
    watch = ClockWatch()
    watch.look(samples([1980.0] * 30))
    assert watch.look(samples([1500.0] * 30, first=30, segment=1)) == []
    assert watch.look(samples([900.0] * 30, first=60, segment=1, phase="warmup")) == []


def test_that_a_card_that_stays_slower_is_told_once_and_falls_from_there():
    watch = ClockWatch()
    watch.look(samples([1980.0] * 30))
    assert len(watch.look(samples([1700.0] * 400, first=30))) == 1
    assert watch.look(samples([1700.0] * 40, first=430)) == []
    (told,) = watch.look(samples([1500.0] * 10, first=470))
    assert "from 1700 to 1500" in told


def test_that_a_clock_that_is_not_read_is_never_told_of():
    assert ClockWatch().look(samples([float("nan")] * 100)) == []


def test_that_a_sleep_is_told_once():
    slept = iter([100.0, 100.2, 412.2, 412.3])
    watch = SleepWatch(lambda: next(slept))
    assert watch.look() is None
    assert watch.look() == "the machine slept for 312 s: the step that it slept in is no measurement"
    assert watch.look() is None


def test_that_a_machine_which_does_not_tell_never_slept():
    watch = SleepWatch(lambda: None)
    assert watch.look() is None


def test_that_this_machine_is_awake_between_two_looks():
    first, second = slept_s(), slept_s()
    assert first is not None
    assert first >= -0.01
    assert second is not None
    assert abs(second - first) < 0.01
