"""The interval of a ratio against scipy's bootstrap and by simulation; verdicts by hand."""

import numpy as np
import pytest
from scipy import signal, stats

from explorer.results.comparison import RatioInterval, chained, enough, ratio_interval, verdict

STEPS, MOST_PAIRS = 10, 30


def blocks(ratio: float, noise: float, count: int, seed: int, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Block medians of A and B, (count, MOST_PAIRS) each, from step times in randomized ABBA order.

    Step times: AR(1) of 0.5 in the logarithm, 2% drift over the whole run, 3% outliers of up to 3x.
    """
    rng = np.random.default_rng(seed)
    n = 2 * MOST_PAIRS * steps
    shocks = rng.normal(size=(count, n))
    shocks[:, 1:] *= np.sqrt(1 - 0.5**2)
    times = np.exp(noise * signal.lfilter([1.0], [1.0, -0.5], shocks, axis=1)) * (1 + 0.02 * np.arange(n) / n)
    times *= np.where(rng.random((count, n)) < 0.03, rng.uniform(1, 3, (count, n)), 1.0)
    medians = np.median(times.reshape(count, MOST_PAIRS, 2, steps), axis=3)
    b_first = np.repeat(rng.random((count, MOST_PAIRS // 2)) < 0.5, 2, axis=1) ^ (np.arange(MOST_PAIRS) % 2 == 1)
    a = np.where(b_first, medians[..., 1], medians[..., 0]) * ratio
    return a, np.where(b_first, medians[..., 0], medians[..., 1])


def measured(a: np.ndarray, b: np.ndarray) -> RatioInterval:
    """The interval at which the stop rule, asked after every pair, ends one comparison."""
    for pairs in range(8, MOST_PAIRS + 1):
        interval = ratio_interval(a[:pairs], b[:pairs], seed=pairs, resamples=500)
        if enough(interval):
            break
    return interval


def test_that_95_percent_intervals_cover_the_true_ratio_in_93_to_97_percent_of_1000_stopped_comparisons():
    seen = []
    for number, noise in enumerate((0.005, 0.01, 0.02, 0.03)):
        a, b = blocks(1.25, noise, 250, seed=number)
        seen += [measured(*pair) for pair in zip(a, b, strict=True)]
    assert len(seen) == 1000
    assert {interval.n_pairs for interval in seen} >= set(range(8, MOST_PAIRS + 1))  # the rule ended them at all sizes
    covered = np.mean([interval.low <= 1.25 <= interval.high for interval in seen])
    assert 0.93 <= covered <= 0.97  # 96.0%


def test_that_blocks_of_three_steps_cover_as_well():
    """Of eight pairs each, as where a step takes most of a second."""
    seen = []
    for number, noise in enumerate((0.001, 0.002, 0.005, 0.01)):
        a, b = blocks(1.25, noise, 250, seed=20 + number, steps=3)
        seen += [ratio_interval(a[i, :8], b[i, :8], seed=i, resamples=500) for i in range(250)]
    covered = np.mean([interval.low <= 1.25 <= interval.high for interval in seen])
    assert 0.93 <= covered <= 0.97  # 96.1%


def test_that_equal_arms_are_seldom_called_different_and_two_percent_nearly_always_is():
    a, b = blocks(1.0, 0.01, 100, seed=11)
    same = [verdict(measured(*pair), floor=0.005) for pair in zip(a, b, strict=True)]
    assert sum(v in ("faster", "slower") for v in same) <= 5
    slow = [verdict(measured(*pair), floor=0.005) for pair in zip(a, b * 1.02, strict=True)]
    assert slow.count("slower") >= 95
    fast = [verdict(measured(*pair), floor=0.005) for pair in zip(a * 1.02, b, strict=True)]
    assert fast.count("faster") >= 95


def test_that_the_interval_is_that_of_scipys_paired_percentile_bootstrap_at_96_5_percent():
    a, b = (arm[0] for arm in blocks(1.1, 0.1, 1, seed=5))
    mine = ratio_interval(a, b, seed=1, resamples=100_000)
    theirs = stats.bootstrap(
        (a, b),
        lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis),
        paired=True,
        confidence_level=0.965,
        n_resamples=100_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    # Ten seeds differ by 0.0002 at the low end and 0.0012 at the high; at 95% they lie 0.0017 and 0.0050 further in.
    assert mine.low == pytest.approx(theirs.low, abs=5e-4)
    assert mine.high == pytest.approx(theirs.high, abs=2e-3)


def test_that_the_ratio_is_of_the_medians_of_each_arm():
    interval = ratio_interval([4.0, 8.0, 6.0], [2.0, 1.0, 3.0], seed=0)
    assert (interval.ratio, interval.n_pairs) == (3.0, 3)


def test_that_pairs_stay_together_so_that_a_shared_drift_cancels():
    drift = np.linspace(1.0, 2.0, 10)
    interval = ratio_interval(3 * drift, drift, seed=0)
    assert (interval.ratio, interval.low, interval.high) == pytest.approx((3.0, 3.0, 3.0))


def test_that_a_chain_of_three_comparisons_covers_the_product_of_their_ratios():
    arms = [blocks(ratio, 0.02, 250, seed=20 + n) for n, ratio in enumerate((2.0, 1.5, 0.8))]
    seen = [chained([(a[i, :10], b[i, :10]) for a, b in arms], seed=i, resamples=1000) for i in range(250)]
    covered = np.mean([interval.low <= 2.4 <= interval.high for interval in seen])
    assert 0.93 <= covered <= 0.985


def test_that_a_chains_interval_is_that_of_independent_ratios_multiplied():
    arms = [[arm[0, :12] for arm in blocks(ratio, 0.05, 1, seed=30 + n)] for n, ratio in enumerate((2.0, 1.5))]
    chain = chained(arms, seed=1)
    # Half the width of each interval, in the logarithm, adds up like the legs of a right-angled triangle.
    legs = [np.log(i.high / i.low) for i in (ratio_interval(a, b, seed=7) for a, b in arms)]
    assert np.log(chain.high / chain.low) == pytest.approx(np.hypot(*legs), rel=0.15)
    assert np.log(chain.high / chain.low) < 0.9 * sum(legs)  # the same draws for both would add the widths up
    assert chain.ratio == pytest.approx(np.prod([np.median(a) / np.median(b) for a, b in arms]))
    assert chain.n_pairs == 12


def test_that_a_chain_of_one_is_the_comparison_itself_and_of_none_is_refused():
    a, b = (arm[0, :10] for arm in blocks(1.0, 0.02, 1, seed=6))
    assert chained([(a, b)], seed=3) == ratio_interval(a, b, seed=3)
    with pytest.raises(ValueError, match="no comparison"):
        chained([], seed=0)


def test_that_a_seed_fixes_the_interval_and_confidence_widens_it():
    a, b = (arm[0, :10] for arm in blocks(1.0, 0.02, 1, seed=6))
    few = [ratio_interval(a, b, seed=seed, resamples=50) for seed in (3, 3, 4)]
    assert few[0] == few[1] != few[2]
    narrow, wide = (ratio_interval(a, b, seed=3, confidence=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([1.0], [1.0], "at least 2"),
        ([1.0, 2.0], [1.0], "2 blocks of A and 1 of B"),
        ([1.0, 0.0], [1.0, 1.0], "positive"),
        ([1.0, float("nan")], [1.0, 1.0], "positive"),
        ([1.0, float("inf")], [1.0, 1.0], "positive"),
    ],
)
def test_that_blocks_that_cannot_be_compared_are_refused(a, b, words):
    with pytest.raises(ValueError, match=words):
        ratio_interval(a, b, seed=0)


def interval(ratio: float, low: float, high: float, n_pairs: int = 8) -> RatioInterval:
    return RatioInterval(ratio=ratio, low=low, high=high, n_pairs=n_pairs)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (interval(1.50, 1.49, 1.51), "faster"),
        (interval(0.66, 0.65, 0.67), "slower"),
        (interval(1.50, 1.20, 1.90), "faster"),
        (interval(1.004, 1.001, 1.007), "no difference shown"),
        (interval(0.996, 0.993, 0.999), "no difference shown"),
        (interval(1.006, 1.001, 1.011), "faster"),
        (interval(0.994, 0.989, 0.999), "slower"),
        (interval(1.006, 0.999, 1.013), "no difference shown"),
        (interval(1.02, 0.99, 1.05), "unsettled"),
        (interval(1.003, 1.001, 1.02), "unsettled"),
        (interval(1.50, 1.49, 1.51, 7), "unsettled"),
    ],
)
def test_that_a_verdict_needs_the_interval_off_1_and_the_ratio_beyond_the_floor(seen, expected):
    assert verdict(seen, floor=0.005) == expected


@pytest.mark.parametrize("floor", [-0.001, float("nan"), float("inf")])
def test_that_a_floor_below_zero_is_refused(floor):
    with pytest.raises(ValueError, match="floor is"):
        verdict(interval(1.5, 1.4, 1.6), floor=floor)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (interval(2.0, 1.985, 2.015), True),
        (interval(2.0, 1.985, 2.021), False),
        (interval(2.0, 1.979, 2.015), False),
        (interval(2.0, 1.985, 2.015, 7), False),
    ],
)
def test_that_measuring_may_end_with_8_pairs_and_one_percent_either_way(seen, expected):
    assert enough(seen) is expected
