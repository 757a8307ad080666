"""The warm-up rule and a segment's summary, against pandas and hand-worked cases."""

import math

import numpy as np
import pandas as pd
import pytest

from explorer.results.ring import as_columns
from explorer.results.sample import Sample
from explorer.results.statistics import Tally, WarmUp, has_settled, quantiles, summary, tally


def sample(step: int, step_ms: float, phase: str = "steady", **fields) -> Sample:
    return Sample(step=step, segment=0, phase=phase, time_s=step * 0.05, tokens=1000, step_ms=step_ms, **fields)


def phases(step_ms: list[float]) -> list[str]:
    warm_up = WarmUp()
    return [warm_up.feed(ms) for ms in step_ms]


def test_that_constant_steps_settle_after_the_compile_step_and_twenty_more():
    assert phases([900.0] + [50.0] * 25) == ["compile"] + ["warmup"] * 20 + ["steady"] * 5


def test_that_the_rule_compares_medians_of_ten_so_single_outliers_do_not_matter():
    ms = [900.0] + [50.0, 50.0, 500.0, 50.0, 50.0, 50.0, 50.0, 400.0, 50.0, 50.0] * 2
    assert phases([*ms, 50.0])[-1] == "steady"


@pytest.mark.parametrize(("second", "settled"), [(100.9, True), (101.0, False), (99.1, True), (99.0, False)])
def test_that_a_move_of_one_percent_is_not_settled_and_less_is(second, settled):
    assert has_settled([100.0] * 10 + [second] * 10) is settled


def test_that_steps_that_keep_getting_faster_are_warm_up_until_they_stop():
    falling = [100.0 * 0.97**i for i in range(30)]
    # 29 are slower than the last; the earlier window's median is level once it holds six of the rest, then ten more.
    assert phases([5.0, *falling, *[falling[-1]] * 25]).count("warmup") == 29 + 6 + 10


def test_that_warm_up_gives_up_after_sixty_steps_and_says_that_it_still_drifts():
    warm_up = WarmUp()
    seen = [warm_up.feed(50.0 * 0.99**i) for i in range(70)]
    assert seen == ["compile"] + ["warmup"] * 60 + ["steady"] * 9
    assert warm_up.still_drifts


def test_that_warm_up_gives_up_after_thirty_seconds():
    warm_up = WarmUp()
    assert [warm_up.feed(6000.0) for _ in range(8)] == ["compile"] + ["warmup"] * 5 + ["steady"] * 2
    assert warm_up.still_drifts


def test_that_steps_settled_by_the_rule_do_not_still_drift():
    warm_up = WarmUp()
    assert [warm_up.feed(5.0) for _ in range(70)][-1] == "steady"
    assert not warm_up.still_drifts


def made_up_segment(n: int = 400) -> list[Sample]:
    rng = np.random.default_rng(7)
    warm_up = WarmUp()
    return [
        sample(
            i,
            ms := float(50 + rng.gamma(2.0, 0.5) + (900 if i == 0 else 0)),
            warm_up.feed(ms),
            loss=10 - i / 100,
            skipped=i in (0, 30, 31),
            synchronizations=1,
            peak_allocated_bytes=2_000 + i if i else 9_999_999,
            reserved_bytes=3_000 - i,
        )
        for i in range(n)
    ]


def test_that_a_summary_equals_what_pandas_finds_in_the_steady_samples():
    samples = made_up_segment()
    seen = summary(as_columns(samples))
    frame = pd.DataFrame([{"phase": s.phase, "ms": s.step_ms, "rate": s.tokens_per_s} for s in samples])
    steady = frame[frame.phase == "steady"]
    assert 0 < len(steady) < 400
    assert (seen.steps, seen.n, seen.warmup_steps) == (400, len(steady), 400 - len(steady))
    assert seen.settled
    ms, rate = steady.ms.quantile([0.5, 0.05, 0.95, 0.99]), steady.rate.quantile([0.5, 0.05, 0.95])
    assert [seen.step_ms_median, seen.step_ms_p5, seen.step_ms_p95, seen.step_ms_p99] == pytest.approx(list(ms))
    assert [seen.tokens_per_s_median, seen.tokens_per_s_p5, seen.tokens_per_s_p95] == pytest.approx(list(rate))


def test_that_a_summary_keeps_compile_time_loss_and_counts_over_all_samples_but_memory_of_those_that_count():
    samples = made_up_segment()
    seen = summary(as_columns(samples))
    first_steady = next(s for s in samples if s.phase == "steady")
    assert seen.compile_ms == samples[0].step_ms
    assert (seen.loss_first, seen.loss_last) == (10.0, samples[-1].loss)
    assert (seen.skipped_steps, seen.synchronizations) == (3, 400)
    assert seen.peak_allocated_bytes == 2_399
    assert seen.reserved_bytes == first_steady.reserved_bytes
    assert seen.device_used_bytes == -1
    assert math.isnan(seen.ttft_ms)


def test_that_steady_samples_after_a_drifting_warm_up_are_not_called_settled():
    warm_up = WarmUp()
    samples = [sample(i, ms := 50.0 * 0.99**i, warm_up.feed(ms)) for i in range(80)]
    seen = summary(as_columns(samples))
    assert (seen.n, seen.warmup_steps, seen.settled) == (19, 61, False)


@pytest.mark.parametrize(("steps", "n"), [(1, 0), (2, 1), (3, 2), (8, 4), (15, 8), (20, 10), (21, 11)])
def test_that_a_segment_too_short_to_settle_leaves_out_its_first_steps_and_says_so(steps, n):
    samples = [sample(i, 100.0 + i, "compile" if i == 0 else "warmup") for i in range(steps)]
    seen = summary(as_columns(samples))
    assert (seen.steps, seen.n, seen.warmup_steps, seen.settled) == (steps, n, steps - n, False)
    expected = np.median(np.arange(100.0 + steps - n, 100.0 + steps)) if n else math.nan
    assert seen.step_ms_median == pytest.approx(expected, nan_ok=True)


def test_that_generation_has_its_time_to_first_token_apart_and_prefill_memory_counted():
    samples = [sample(0, 80.0, "prefill", peak_allocated_bytes=900)]
    samples += [sample(i, 4.0 + i / 100, "steady", peak_allocated_bytes=100) for i in range(1, 101)]
    seen = summary(as_columns(samples))
    assert (seen.ttft_ms, seen.n, seen.peak_allocated_bytes) == (80.0, 100, 900)
    assert seen.step_ms_median == pytest.approx(4.505)
    assert seen.step_ms_p99 == pytest.approx(4.9901)


def test_that_a_loss_that_became_nan_is_the_last_loss():
    samples = [sample(0, 1.0, "compile", loss=5.0), sample(1, 1.0, loss=math.nan)]
    assert math.isnan(summary(as_columns(samples)).loss_last)


def test_that_nothing_measured_gives_an_empty_summary():
    seen = summary(as_columns([]))
    assert (seen.steps, seen.n, seen.settled, seen.peak_allocated_bytes) == (0, 0, False, -1)
    assert math.isnan(seen.step_ms_median)
    assert math.isnan(seen.loss_first)


@pytest.mark.parametrize("cut", [0, 1, 10, 25, 200, 399, 400])
def test_that_tallies_of_two_stretches_add_up_to_that_of_the_whole(cut):
    samples = [sample(0, 80.0, "prefill"), *made_up_segment()]
    parts = tally(as_columns(samples[:cut])) + tally(as_columns(samples[cut:]))
    whole = tally(as_columns(samples))
    assert (parts.steps, parts.steady, parts.warmup_ms) == (whole.steps, whole.steady, whole.warmup_ms)
    assert (parts.ttft_ms, parts.compile_ms) == (80.0, whole.compile_ms)
    assert str((parts.loss_first, parts.loss_last)) == str((whole.loss_first, whole.loss_last))
    assert (parts.skipped_steps, parts.synchronizations) == (whole.skipped_steps, whole.synchronizations)


def test_that_a_summary_counts_samples_that_are_no_longer_held():
    samples = made_up_segment()
    seen = summary(as_columns(samples[300:]), dropped=tally(as_columns(samples[:300])))
    whole = summary(as_columns(samples))
    assert (seen.steps, seen.n, seen.warmup_steps, seen.settled) == (400, whole.n, whole.warmup_steps, True)
    assert (seen.loss_first, seen.compile_ms) == (whole.loss_first, whole.compile_ms)
    assert seen.step_ms_median == pytest.approx(np.median([s.step_ms for s in samples[300:]]))


def test_that_an_empty_tally_adds_nothing_on_either_side():
    some = tally(as_columns(made_up_segment(5)))
    assert str(Tally() + some) == str(some) == str(some + Tally())


def test_that_quantiles_interpolate_between_order_statistics():
    assert quantiles(np.array([4.0, 1.0, 3.0, 2.0]), (0.0, 0.5, 0.9, 1.0)) == pytest.approx([1.0, 2.5, 3.7, 4.0])
