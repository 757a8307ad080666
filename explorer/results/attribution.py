"""Which toggle gives what, alone and beside the others: main effects and interactions of a full factorial."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from explorer.results.comparison import RatioInterval, interval_of, median_ratio, ratio_draws

Times = tuple[Sequence[float], Sequence[float]]
"""Block medians of the baseline and of a setting, measured by turns."""
Kind = Literal["alone", "beside another", "beside all others", "main effect", "interaction"]
"""alone: one toggle against the baseline. beside another: added to that one. beside all others: added last.
main effect: the geometric mean of what it gives, over all settings of the others. interaction: what it gives beside
another over what it gives without that."""

Setting = frozenset[str]
"""The toggles that are on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A factor of speed: above 1 is faster, or of an interaction: together more than apart."""

    kind: Kind
    of: tuple[str, ...]
    interval: RatioInterval


def settings_of(toggles: Sequence[str]) -> list[Setting]:
    """All 2^k of them, the fewest toggles first."""
    return [frozenset(some) for size in range(len(toggles) + 1) for some in itertools.combinations(toggles, size)]


def effects(times: Mapping[Setting, Times], toggles: Sequence[str]) -> list[Effect]:
    """What the comparisons of all settings with the baseline come to, on the logarithm of step time.

    An effect is a sum of the settings' log ratios with the signs of its contrast; its interval comes from their draws,
    which are independent, since each comparison measured the baseline anew.

    Args:
        times: by setting, of all but the empty one.
        toggles: two or more, in the order in which they are shown; of one there is nothing to attribute.
    Raises:
        ValueError: a setting is missing.
    Source: Montgomery, Design and Analysis of Experiments, chapter 6 (the 2^k factorial design).
    """
    order = [setting for setting in settings_of(toggles) if setting]
    missing = [" and ".join(sorted(setting)) for setting in order if setting not in times]
    if missing:
        raise ValueError(f"not measured: {'; '.join(missing)}")
    draws = {s: np.log(ratio_draws(*times[s], seed=place)) for place, s in enumerate(order)}
    logs = {s: float(np.log(median_ratio(*times[s]))) for s in order}
    pairs = min(len(a) for a, _ in times.values())
    found = []

    def add(kind: Kind, of: tuple[str, ...], weights: Mapping[Setting, float]) -> None:
        # The empty setting is the baseline against itself: its log ratio is 0.
        drawn: NDArray[np.float64] = np.exp(sum(weight * draws[s] for s, weight in weights.items() if s))
        ratio = float(np.exp(sum(weight * logs[s] for s, weight in weights.items() if s)))
        found.append(Effect(kind=kind, of=of, interval=interval_of(drawn, ratio=ratio, n_pairs=pairs)))

    everything = frozenset(toggles)
    others = list(itertools.permutations(toggles, 2)) if len(toggles) > 2 else []
    for toggle in toggles:
        add("alone", (toggle,), {frozenset({toggle}): 1.0})
    for toggle, other in others:  # with two toggles the other one is all others
        add("beside another", (toggle, other), {frozenset({toggle, other}): 1.0, frozenset({other}): -1.0})
    for toggle in toggles:
        add("beside all others", (toggle,), {everything: 1.0, everything - {toggle}: -1.0})
    for size in range(1, len(toggles) + 1):
        for of in itertools.combinations(toggles, size):
            add("main effect" if size == 1 else "interaction", of, contrast(of, toggles))
    return found


def contrast(of: Iterable[str], toggles: Sequence[str]) -> dict[Setting, float]:
    """Weights of all settings in the effect of ``of``: the mean, over the settings of the other toggles, of the
    difference (of differences, …) that switching ``of`` on makes."""
    chosen = frozenset(of)
    others = 2 ** (len(toggles) - len(chosen))
    return {s: (-1.0) ** len(chosen - s) / others for s in settings_of(toggles)}
