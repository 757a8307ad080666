"""The A/A floor: how much two equal arms may seem to differ on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from explorer.results.blocks import ComparisonResult
from explorer.results.comparison import RatioInterval, Verdict, verdict

ASSUMED_FLOOR = 0.005
"""Where none is measured: the share by which two equal arms may seem to differ."""
FEWEST_COMPARISONS = 5
"""Of A with itself: fewer do not make a measured floor."""

# 97.5% points of Student's t for 1, 2, … degrees of freedom; the last one stands for all beyond.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstItself:
    """One comparison of a configuration with itself, the second arm delayed by a known share or not at all."""

    interval: RatioInterval
    dropped_blocks: int
    at: str
    """ISO 8601 with offset."""

    @classmethod
    def of(cls, result: ComparisonResult, *, at: str) -> AgainstItself:
        return cls(interval=result.interval, dropped_blocks=result.dropped_blocks, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What a configuration showed against itself, on one device under one set of versions."""

    comparisons: tuple[AgainstItself, ...] = ()
    delayed: Mapping[float, tuple[AgainstItself, ...]] = field(default_factory=dict)
    """By the share by which the second arm was delayed."""

    @property
    def measured(self) -> float | None:
        """The floor as a share, or None while there are too few comparisons."""
        if len(self.comparisons) < FEWEST_COMPARISONS:
            return None
        return floor_of([comparison.interval.ratio for comparison in self.comparisons])

    def of(self, delay: float) -> tuple[AgainstItself, ...]:
        return self.delayed.get(delay, ()) if delay else self.comparisons

    def done(self, delay: float) -> int:
        """How many comparisons there are of equal arms, and of those delayed by ``delay``: of the kind with fewer."""
        return min(len(self.comparisons), len(self.of(delay)))

    def verdicts(self, delay: float) -> Sequence[Verdict]:
        """What each comparison would have been called under the floor that holds now."""
        floor = ASSUMED_FLOOR if self.measured is None else self.measured
        return [verdict(comparison.interval, floor=floor) for comparison in self.of(delay)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        delayed = {f"{delay:g}": [_to_dict(one) for one in some] for delay, some in self.delayed.items()}
        return {"comparisons": [_to_dict(one) for one in self.comparisons], "delayed": delayed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Floor:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing, unknown or of the wrong kind.
        """
        try:
            delayed = {float(share): tuple(map(_from_dict, some)) for share, some in values["delayed"].items()}
            return cls(comparisons=tuple(map(_from_dict, values["comparisons"])), delayed=delayed)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the floor cannot be read: {error!r}") from error


def floor_of(ratios: Sequence[float]) -> float:
    """The share within which 95 of 100 further comparisons of equal arms are expected to lie.

    Student's t times the root mean square of the ratios' logarithms: a prediction interval for one more, with as many
    degrees of freedom as ratios, since equal arms have a true ratio of 1. Few comparisons make it wide, not lucky.

    Args:
        ratios: of step times of equal arms.
    Raises:
        ValueError: there is none.
    Source: Hahn and Meeker, Statistical Intervals, 1991, chapter 4, with a known mean.
    """
    if not ratios:
        raise ValueError("a floor needs at least one comparison of equal arms")
    rms = math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios))
    return math.expm1(_T[min(len(ratios), len(_T)) - 1] * rms)


def _to_dict(one: AgainstItself) -> dict[str, Any]:
    i = one.interval
    return {
        "ratio": i.ratio,
        "low": i.low,
        "high": i.high,
        "n_pairs": i.n_pairs,
        "dropped_blocks": one.dropped_blocks,
        "at": one.at,
    }


def _from_dict(values: Mapping[str, Any]) -> AgainstItself:
    interval = RatioInterval(**{name: values[name] for name in ("ratio", "low", "high", "n_pairs")})
    return AgainstItself(interval=interval, dropped_blocks=values["dropped_blocks"], at=values["at"])
