"""Growth of a figure that is read again and again, setting by setting."""

from __future__ import annotations

import pytest

from explorer.results.steadiness import FEWEST, as_row, growth


def test_that_each_setting_is_held_against_itself_and_the_worst_is_told() -> None:
    # By turns; only "on" grows: medians 200 of its first four, 210 of its last four.
    on = [200, 200, 200, 900, 203, 204, 205, 206, 210, 210, 210, 210]
    readings = [pair for value in on for pair in (("off", 100.0), ("on", float(value)))]
    found = growth(readings)
    assert found is not None
    assert (found.setting, found.first, found.last, found.n) == ("on", 200, 210, 12)
    assert found.share == pytest.approx(0.05)


def test_that_what_falls_is_no_growth_and_what_was_not_measured_does_not_count() -> None:
    found = growth([("a", value) for value in (-1.0, 100, 100, 90, -1, 90, 80, 80)])
    assert found is not None
    assert found.share == pytest.approx(-0.2)
    assert growth([("a", -1.0)] * 50) is None
    assert growth([("a", 1.0)] * (FEWEST - 1)) is None
    assert as_row("x", None) == {"x_first": None, "x_last": None, "x_growth": None, "x_at": None}
