"""Colours that can be read, and numbers as they are written."""

from __future__ import annotations

import math

import pytest
from PySide6.QtGui import QColor

from explorer.gui.palette import (
    DARK,
    LIGHT,
    a_colour,
    b_colour,
    contrast,
    gib,
    milliseconds,
    run_colour,
    run_style,
    si_number,
)


def wcag_contrast(one: str, other: str) -> float:
    """WCAG 2.2's definition, worked out from the hex digits."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else math.pow((p + 0.055) / 1.055, 2.4) for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = max(luminance(one), luminance(other)), min(luminance(one), luminance(other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_that_every_colour_of_text_reads_on_windows_and_tables(dark: bool) -> None:
    look = DARK if dark else LIGHT
    colours = [run_colour(i, dark).name() for i in range(12)] + [a_colour(dark).name(), b_colour(dark).name()]
    for colour in [*colours, look.text, look.muted, look.problem]:
        for ground in (look.background, look.base):
            assert wcag_contrast(colour, ground) >= 4.5, (colour, ground)


def test_that_contrast_is_that_of_black_on_white() -> None:
    assert contrast(QColor("black"), QColor("white")) == pytest.approx(21.0)
    assert contrast(QColor("#777777"), QColor("white")) == pytest.approx(wcag_contrast("#777777", "#ffffff"))


@pytest.mark.parametrize("dark", [False, True])
def test_that_twenty_runs_differ_in_colour_or_dash_and_none_looks_like_a_or_b(dark: bool) -> None:
    looks = {(run_colour(i, dark).name(), run_style(i)) for i in range(20)}
    assert len(looks) == 20
    assert not {a_colour(dark).name(), b_colour(dark).name()} & {name for name, _ in looks}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (174_400.0, "174.4k"),
        (1_682.0, "1.68k"),
        (820.0, "820.0"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (0.59, "0.590"),
        (999_960.0, "1.00M"),
        (2.5e6, "2.50M"),
        (0.0, "0.00"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_that_rates_are_written_in_si(value: float, written: str) -> None:
    assert si_number(value) == written


@pytest.mark.parametrize(
    ("size_bytes", "written"),
    [
        (8.9 * 2**30, "8.90 GiB"),
        (139.8 * 2**30, "139.8 GiB"),
        (512 * 2**20, "512.0 MiB"),
        (2**30 - 1, "1,024 MiB"),
        (2**30, "1.00 GiB"),
        (0, "0.00 MiB"),
        (-1, "–"),
        (math.nan, "–"),
    ],
)
def test_that_memory_is_written_in_binary_units(size_bytes: float, written: str) -> None:
    assert gib(size_bytes) == written


@pytest.mark.parametrize(
    ("value_ms", "written"), [(47.0, "47.0 ms"), (0.5912, "0.591 ms"), (12_345.6, "12,346 ms"), (math.nan, "–")]
)
def test_that_times_are_written_in_milliseconds(value_ms: float, written: str) -> None:
    assert milliseconds(value_ms) == written
