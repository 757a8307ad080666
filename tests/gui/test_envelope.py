"""Long series brought down to a screen, against doing the same in plain Python over all of them."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

import numpy as np
import pytest

from explorer.gui.envelope import Envelope, Floats, WindowMedians


def series(count: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(3)
    return np.cumsum(rng.exponential(0.01, count)), rng.normal(size=count)


def test_that_each_bin_shows_its_lowest_and_highest_value_however_the_rows_came() -> None:
    time_s, values = series(20_000)
    values[[70, 7_000]] = math.nan
    low_s, high_s, bins = 0.0, 240.0, 100
    envelope = Envelope()
    for stop in (5_000, 5_001, 12_345, 20_000):
        now_s, now = time_s[:stop], values[:stop]
        x, y = envelope.points(now_s, now.__getitem__, dropped=0, low_s=low_s, high_s=high_s, bins=bins)
    expected: dict[int, list[float]] = defaultdict(list)
    for at_s, value in zip(time_s, values, strict=True):
        if not math.isnan(value):
            expected[int(at_s / (high_s / bins))].append(value)
    assert x[::2].tolist() == pytest.approx([(b + 0.5) * high_s / bins for b in sorted(expected)])
    assert y[::2].tolist() == [min(expected[b]) for b in sorted(expected)]
    assert y[1::2].tolist() == [max(expected[b]) for b in sorted(expected)]


def test_that_few_rows_are_shown_as_they_are() -> None:
    time_s, values = series(100)
    x, y = Envelope().points(time_s, values.__getitem__, dropped=0, low_s=0.0, high_s=10.0, bins=50)
    assert x.tolist() == time_s.tolist()
    assert y.tolist() == values.tolist()


def test_that_a_zoomed_range_shows_its_rows_and_one_more_at_either_end() -> None:
    time_s, values = series(20_000)
    low_s, high_s = float(time_s[1_000]), float(time_s[1_050])
    x, _ = Envelope().points(time_s, values.__getitem__, dropped=0, low_s=low_s, high_s=high_s, bins=400)
    assert x.tolist() == time_s[999:1_052].tolist()


def test_that_rows_let_go_at_the_front_are_neither_lost_nor_counted_twice() -> None:
    time_s, values = series(8_000)
    envelope = Envelope()
    envelope.points(time_s[:6_000], values[:6_000].__getitem__, dropped=0, low_s=0.0, high_s=100.0, bins=20)
    kept_s, kept = time_s[5_000:], values[5_000:]
    _, y = envelope.points(kept_s, kept.__getitem__, dropped=5_000, low_s=0.0, high_s=100.0, bins=20)
    fresh_y = Envelope().points(time_s, values.__getitem__, dropped=0, low_s=0.0, high_s=100.0, bins=20)[1]
    assert y.tolist() == fresh_y.tolist()


def test_that_medians_are_those_of_each_window_and_never_across_segments() -> None:
    time_s, values = series(3_000)
    segment = (time_s > 10.1).astype(np.int64)
    medians = WindowMedians(0.25)
    for stop in (1, 2, 999, 1_000, 3_000):
        x, y = medians.points(time_s[:stop], segment[:stop], values[:stop].__getitem__, dropped=0)
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (part, at_s) in enumerate(zip(segment, time_s, strict=True)):
        windows[int(part), math.floor(at_s / 0.25)].append(row)
    assert y.tolist() == pytest.approx([median(values[rows]) for rows in windows.values()])
    assert x.tolist() == [time_s[rows[-1]] for rows in windows.values()]


def test_that_medians_of_rows_let_go_stay() -> None:
    time_s, values = series(3_000)
    segment = np.zeros(3_000, dtype=np.int64)
    medians = WindowMedians(0.25)
    medians.points(time_s[:2_000], segment[:2_000], values[:2_000].__getitem__, dropped=0)
    x, y = medians.points(time_s[1_000:], segment[1_000:], values[1_000:].__getitem__, dropped=1_000)
    whole_x, whole_y = WindowMedians(0.25).points(time_s, segment, values.__getitem__, dropped=0)
    assert x.tolist() == whole_x.tolist()
    assert y.tolist() == whole_y.tolist()
