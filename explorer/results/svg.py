"""Line charts as SVG that stands within a page and needs nothing from outside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from numpy.typing import NDArray

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 40
# Source: Okabe & Ito 2008, darkened where a line on white would have less than 3:1.
COLOURS = ("#0072b2", "#d55e00", "#008a65", "#a2477e", "#6b5f00")
MARK_ROWS, MARK_ROW_PX = 3, 13
LETTER_PX = 6.2
"""A letter's width in 11 px sans-serif, on average."""
DASHES = ("", "7 4", "2 3", "8 3 2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve; NaN leaves a gap."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An upright line where something changed."""

    x: float
    words: str
    place: int
    """Of the line that it belongs to."""


def colour(place: int) -> str:
    """Of the line at ``place``."""
    return COLOURS[place % len(COLOURS)]


def dash(place: int) -> str:
    """The dashes of the line at ``place``: they change when the colours begin again."""
    return DASHES[place // len(COLOURS) % len(DASHES)]


def chart(
    lines: Sequence[Line | None],
    *,
    title: str,
    x_title: str,
    y_title: str,
    from_zero: bool,
    top: float | None = None,
    marks: Sequence[Mark] = (),
    mark_words: bool = False,
) -> str:
    """The chart, or nothing where no line has a point. A line that is None keeps its colour free.

    Args:
        top: where the axis ends; None: at the largest value.
        marks: what changed, in the order of x.
        mark_words: whether their words stand in the picture, as far as there is room; they can be pointed at anyway.
    """
    known = [line for line in lines if line is not None and bool((line.y == line.y).any())]
    if not known:
        return ""
    finite = [float(v) for line in known for v in line.y if math.isfinite(v)]
    x_end = max(float(line.x.max()) for line in known) or 1.0
    low = 0.0 if from_zero else min(finite)
    high = top if top is not None else max(finite)
    if not high > low:
        high = low + (abs(low) or 1.0)
    y_ticks, x_ticks = _ticks(low, high, 5), _ticks(0.0, x_end, 8)
    rows = min(len(marks), MARK_ROWS) if mark_words else 0
    free = (MARK_ROW_PX * rows + 4 * bool(rows)) / (HEIGHT - TOP - BOTTOM)
    high = low + (max(high, y_ticks[-1]) - low) / (1 - free)

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / x_end

    def down(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="11" fill="#56606b">',
        f"<title>{escape(title)}</title>",
    ]
    for value in y_ticks:
        y = f"{down(value):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#dfe3e7" stroke-width="1"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    for value in x_ticks:
        at = f"{across(value):.1f}"
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_number(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_title)}</text>')
    height = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="14" y="{height:.0f}" text-anchor="middle" transform="rotate(-90 14 {height:.0f})">'
        f"{escape(y_title)}</text>"
    )
    for place, line in enumerate(lines):
        if line is None:
            continue
        points = _path(zip(map(across, line.x.tolist()), line.y.tolist(), strict=True), down)
        if points:
            parts.append(
                f'<path d="{points}" fill="none" stroke="{colour(place)}" stroke-width="1.5"'
                + (f' stroke-dasharray="{dash(place)}"' if dash(place) else "")
                + f"><title>{escape(line.name)}</title></path>"
            )
    return "\n".join([*parts, *_marks(marks, across, words=mark_words), "</svg>"])


def _marks(marks: Sequence[Mark], across: Callable[[float], float], *, words: bool) -> list[str]:
    parts = []
    row_ends = [float(LEFT)] * MARK_ROWS
    for mark in marks:
        x = across(mark.x)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{colour(mark.place)}" '
            f'stroke-dasharray="2 3"><title>{escape(mark.words)}</title></line>'
        )
        width = LETTER_PX * len(mark.words) + 4
        # Right of its line; left of it near the edge. The first row with room, so that words do not overlap.
        left = x + 4 if x + 4 + width <= WIDTH - RIGHT else max(x - 4 - width, LEFT)
        row = next((i for i, end in enumerate(row_ends) if left >= end), None)
        if words and row is not None:
            row_ends[row] = left + width
            y = TOP + 10 + MARK_ROW_PX * row
            parts.append(
                f'<rect x="{left - 2:.1f}" y="{y - 10}" width="{width:.1f}" height="{MARK_ROW_PX}" fill="#fff" '
                'opacity="0.8"/>'
                f'<text x="{left:.1f}" y="{y}" fill="{colour(mark.place)}">{escape(mark.words)}</text>'
            )
    return parts


def swatch(place: int) -> str:
    """A short piece of the line at ``place``, for a legend or a table."""
    dashes = f' stroke-dasharray="{dash(place)}"' if dash(place) else ""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="10" aria-hidden="true"><line x1="0" x2="24" y1="5" '
        f'y2="5" stroke="{colour(place)}" stroke-width="3"{dashes}/></svg>'
    )


def interval(low: float, middle: float, high: float, *, floor: float, title: str) -> str:
    """A ratio with its interval, over 1 and the band within which equal arms may seem to differ."""
    ends = [low, high, 1 / (1 + floor), 1 + floor]
    room = 0.1 * (max(ends) - min(ends)) or 0.01
    left, right = min(ends) - room, max(ends) + room

    def across(value: float) -> str:
        return f"{20 + (WIDTH - 40) * (value - left) / (right - left):.1f}"

    band = float(across(1 + floor)) - float(across(1 / (1 + floor)))
    words = "".join(
        f'<text x="{across(value)}" y="46" text-anchor="{anchor}">{value:.3f}x</text>'
        for value, anchor in ((low, "end"), (high, "start"), (1.0, "middle"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 52" role="img" width="{WIDTH}" height="52" '
        f'font-family="sans-serif" font-size="11" fill="#56606b"><title>{escape(title)}</title>'
        f'<rect x="{across(1 / (1 + floor))}" y="4" width="{band:.1f}" height="28" fill="#d3dbe3"/>'
        f'<line x1="{across(1)}" x2="{across(1)}" y1="4" y2="32" stroke="#6c8cab" stroke-dasharray="4 3"/>'
        f'<line x1="{across(low)}" x2="{across(high)}" y1="18" y2="18" stroke="{colour(1)}" stroke-width="3"/>'
        f'<circle cx="{across(middle)}" cy="18" r="5" fill="{colour(1)}"/>{words}</svg>'
    )


def _path(points: Iterable[tuple[float, float]], down: Callable[[float], float]) -> str:
    """SVG's way to write a curve; it is lifted where a value is not finite."""
    written, lifted = [], True
    for x, y in points:
        if math.isfinite(y):
            written.append(f"{'M' if lifted else 'L'}{x:.1f} {down(y):.1f}")
        lifted = not math.isfinite(y)
    return "".join(written)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from ``low`` to at least ``high``, some ``most`` of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * most >= high - low)
    first, last = math.floor(low / step + 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(max(first, math.ceil(low / step - 1e-9)), last + 1)] or [low, high]


def _number(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"
