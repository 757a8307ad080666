"""Which of two arms is faster, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """How many times A's step time B's is: A over B, so above 1 where B is faster."""

    ratio: float
    low: float
    high: float
    n_pairs: int


def ratio_interval(
    a_blocks: Sequence[float],
    b_blocks: Sequence[float],
    *,
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> RatioInterval:
    """The median of A's block medians over the median of B's, with its bootstrap interval by block pair.

    Args:
        a_blocks: median step time of each of A's blocks, in any unit.
        b_blocks: those of B's, in the same unit; the i-th of each were measured next to each other.
        seed: of the resampling.
        resamples: how often the pairs are drawn anew.
        confidence: how often such intervals are to hold the true ratio.
    Raises:
        ValueError: fewer than two pairs, or not as many blocks of one arm as of the other.
    """
    a, b = np.asarray(a_blocks, dtype=np.float64), np.asarray(b_blocks, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2:
        raise ValueError(f"{a.size} blocks of A and {b.size} of B; there must be as many, and at least 2")
    drawn = np.random.default_rng(seed).integers(0, len(a), size=(resamples, len(a)))
    ratios = np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    ratio = np.median(a) / np.median(b)
    return RatioInterval(ratio=float(ratio), low=float(low), high=float(high), n_pairs=len(a))
