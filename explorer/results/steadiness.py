"""Does a figure stay where it is over a long time? Readings at the same setting are held against each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FEWEST = 6
"""Readings of a setting that make a beginning and an end, two of each third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How one figure moved: medians of the first and of the last third of its readings at one setting."""

    setting: str
    first: float
    last: float
    n: int

    @property
    def share(self) -> float:
        """0.02: it grew by 2%; below 0: it fell."""
        return self.last / self.first - 1


def growth(readings: Iterable[tuple[str, float]]) -> Growth | None:
    """The largest growth of a figure at any one setting, or None where no setting has enough readings.

    Args:
        readings: (setting, value) in the order in which they were taken; values below or at 0 were not measured.
    """
    by_setting: dict[str, list[float]] = {}
    for setting, value in readings:
        if value > 0:
            by_setting.setdefault(setting, []).append(value)
    return max(
        (_growth(setting, values) for setting, values in by_setting.items() if len(values) >= FEWEST),
        key=lambda found: found.share,
        default=None,
    )


def _growth(setting: str, values: Sequence[float]) -> Growth:
    third = len(values) // 3
    return Growth(
        setting=setting,
        first=statistics.median(values[:third]),
        last=statistics.median(values[-third:]),
        n=len(values),
    )


def as_row(name: str, found: Growth | None) -> Mapping[str, float | str | None]:
    """``found`` as cells, None where it was not measured."""
    return {
        f"{name}_first": None if found is None else found.first,
        f"{name}_last": None if found is None else found.last,
        f"{name}_growth": None if found is None else found.share,
        f"{name}_at": None if found is None else found.setting,
    }
