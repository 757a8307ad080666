"""What one configuration showed by itself: a point of a sweep, as it is kept between its runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A short run's figures."""

    step_ms: float | None = None
    """Median of its steady steps; None where there is none, as of a probe that only asked whether it fits."""
    n: int = 0
    """Steps that the median is over."""
    settled: bool = False
    """Whether step times had settled by the rule before them."""
    peak_bytes: int = -1
    """The largest sum of live tensors within a step."""
    reserved_bytes: int = -1
    """What the allocator held of the device."""
    out_of_memory: bool = False
    stopped: bool = False
    """Whether it was ended from outside, so that it is to be measured again."""
    problem: str | None = None
    """Why it failed."""

    @property
    def fits(self) -> bool:
        """Whether the device had room for it."""
        return self.problem is None and not self.stopped

    @property
    def done(self) -> bool:
        """Whether it says what it was asked, so that it is not to be measured again."""
        return self.fits or self.out_of_memory

    @property
    def timed(self) -> bool:
        """Whether no time is missing: the budget may have ended one that fits before its steps were steady."""
        return self.step_ms is not None or self.out_of_memory

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Point:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is unknown, or it is no mapping.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"a point cannot be read: {error}") from error
