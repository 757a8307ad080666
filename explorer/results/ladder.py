"""A ladder's rungs as rows: each against the one below it, and against the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from explorer.config import RunConfig
from explorer.results.blocks import comparison_row
from explorer.results.checks import Checks
from explorer.results.comparison import chained, verdict
from explorer.results.measured import Measured
from explorer.results.sample import NAN
from explorer.results.setting_row import Cell, Yardsticks, setting_cells

_SPEEDUP_COLUMNS = (
    *("speedup", "ci_low", "ci_high", "verdict", "n_pairs", "floor", "floor_measured", "dropped_blocks", "ended_by"),
    *("speedup_vs_baseline", "ci_low_vs_baseline", "ci_high_vs_baseline", "verdict_vs_baseline"),
)
_NONE: Mapping[str, Cell] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One configuration of a ladder."""

    name: str
    config: RunConfig
    measured: Measured | None = None
    """Against the nearest rung below that did not fail; None of the baseline, and where it was not timed yet."""
    checks: Checks = field(default_factory=Checks)


def ladder_rows(rungs: Sequence[Rung], yardsticks: Yardsticks, *, toggles: Mapping[str, str]) -> list[dict[str, Cell]]:
    """A row a rung, the baseline first.

    Args:
        rungs: as they were climbed.
        yardsticks: what they are held against.
        toggles: each toggle's first level by its name, in column order.
    """
    if not rungs:
        return []

    def row(
        place: int,
        rung: Rung,
        step_ms: float | None = None,
        arm: tuple[int, float] = (-1, NAN),
        speedups: Mapping[str, Cell] = _NONE,
    ) -> dict[str, Cell]:
        """``arm``: peak in bytes and joules a token."""
        return {
            "rung": place,
            "setting": rung.name,
            **{name: speedups.get(name) for name in _SPEEDUP_COLUMNS},
            **setting_cells(
                rung.config,
                step_ms=step_ms,
                peak_bytes=arm[0],
                base_peak_bytes=base_arm[0],
                joules_per_token=arm[1],
                yardsticks=yardsticks,
                checks=rung.checks,
                problem=None if rung.measured is None else rung.measured.problem,
                toggles=toggles,
            ),
        }

    base = rungs[0]
    base_ms, base_arm = None, (-1, NAN)
    climbed = [rung.measured for rung in rungs[1:] if rung.measured is None or rung.measured.usable]
    if climbed and climbed[0] is not None:
        base_ms = statistics.median(climbed[0].blocks.times()[0])
        base_arm = climbed[0].peak_bytes[0], climbed[0].joules_per_token[0]
    rows = [row(0, base, base_ms, base_arm)]
    chain: list[tuple[list[float], list[float]]] | None = []
    below = base
    for place, rung in enumerate(rungs[1:], 1):
        measured = rung.measured
        if measured is None:
            chain = None  # a ratio of it is missing: those above stand against one another, not against the baseline
            rows.append(row(place, rung))
            below = rung
        elif not measured.usable:
            rows.append(row(place, rung))
        else:
            times = measured.blocks.times()
            chain = None if chain is None else [*chain, times]
            cells = _speedups(measured, chain, yardsticks, (below.config, rung.config), (base.config, rung.config))
            arm = measured.peak_bytes[1], measured.joules_per_token[1]
            rows.append(row(place, rung, statistics.median(times[1]), arm, cells))
            below = rung
    return rows


def _speedups(
    measured: Measured,
    chain: Sequence[tuple[list[float], list[float]]] | None,
    yardsticks: Yardsticks,
    arms: tuple[RunConfig, RunConfig],
    ends: tuple[RunConfig, RunConfig],
) -> dict[str, Cell]:
    """Against the rung below, as in a comparison's row, and against the baseline where ``chain`` reaches it."""
    floor, floor_measured = yardsticks.floors(arms)
    result = measured.blocks.result(floor=floor, floor_measured=floor_measured, ended_by=measured.ended_by)
    assert result is not None
    cells: dict[str, Cell] = dict(comparison_row(result))
    del cells["a_step_ms_median"], cells["b_step_ms_median"]
    if chain is None:
        return cells
    whole = chained(chain, seed=0)
    return cells | {
        "speedup_vs_baseline": whole.ratio,
        "ci_low_vs_baseline": whole.low,
        "ci_high_vs_baseline": whole.high,
        "verdict_vs_baseline": verdict(whole, floor=yardsticks.floors(ends)[0]),
    }
