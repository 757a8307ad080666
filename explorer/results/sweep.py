"""A sweep's points as rows: throughput and memory by batch and sequence length, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from explorer.config import RunConfig
from explorer.results.point import Point

Cell = str | int | float | bool | None
Outcome = Literal["measured", "fits", "out of memory", "failed", "stopped"]
"""fits: a probe of some steps, without a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeqPoints:
    """All that was measured at one sequence length."""

    seq: int
    points: Mapping[int, Point]
    """By batch, in the order in which they were measured."""
    left_out: Sequence[int] = ()
    """Batches that were asked for and lie beyond one that does not fit."""

    @property
    def largest(self) -> int | None:
        """The largest batch that is known to fit; None: none is."""
        return max((batch for batch, point in self.points.items() if point.fits), default=None)

    @property
    def too_large(self) -> int | None:
        """The smallest batch that is known not to fit; None: every one did."""
        return min((batch for batch, point in self.points.items() if point.out_of_memory), default=None)

    @property
    def exact(self) -> bool:
        """Whether ``largest`` is the largest there is: one more does not fit."""
        return self.too_large is not None and self.too_large == (self.largest or 0) + 1


def outcome_of(point: Point) -> Outcome:
    if point.out_of_memory:
        return "out of memory"
    if point.problem is not None:
        return "failed"
    if point.stopped:
        return "stopped"
    return "fits" if point.step_ms is None else "measured"


def sweep_rows(base: RunConfig, lines: Sequence[SeqPoints], *, toggles: Mapping[str, str]) -> list[dict[str, Cell]]:
    """A row a point, by sequence length and batch.

    Args:
        base: the configuration but for batch and sequence length.
        lines: what was measured.
        toggles: each toggle's first level by its name, in column order.
    """
    levels = {name: base.level(name) or first for name, first in toggles.items()}
    return [
        {
            "seq": line.seq,
            "batch": batch,
            "outcome": outcome_of(point),
            "tokens_per_s": None if point.step_ms is None else batch * line.seq / point.step_ms * 1e3,
            "step_ms_median": point.step_ms,
            "n": point.n,
            "settled": point.settled,
            "peak_allocated_bytes": _known(point.peak_bytes),
            "reserved_bytes": _known(point.reserved_bytes),
            "largest_batch": line.largest,
            "largest_batch_exact": line.exact,
            "problem": point.problem,
            **levels,
            "model": base.model,
            "weights": base.weights,
            "seed": base.seed,
        }
        for line in lines
        for batch, point in sorted(line.points.items())
    ]


def _known(count_bytes: int) -> int | None:
    return count_bytes if count_bytes >= 0 else None
