"""A ladder's rungs as rows: each against the one below it, and against the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from explorer.config import RunConfig
from explorer.results.blocks import comparison_row
from explorer.results.checks import Checks
from explorer.results.comparison import chained, verdict
from explorer.results.measured import Measured
from explorer.results.setting_row import Cell, Floors, setting_cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One configuration of a ladder."""

    name: str
    config: RunConfig
    measured: Measured | None = None
    """Against the nearest rung below that did not fail; None of the baseline."""
    checks: Checks = field(default_factory=Checks)


def ladder_rows(rungs: Sequence[Rung], floors: Floors, *, toggles: Mapping[str, str]) -> list[dict[str, Cell]]:
    """A row a rung, the baseline first.

    Args:
        rungs: as they were climbed.
        floors: what they are judged by.
        toggles: each toggle's first level by its name, in column order.
    """
    if not rungs:
        return []
    base = rungs[0]
    climbed = [rung for rung in rungs[1:] if rung.measured is not None and rung.measured.usable]
    base_ms, base_peak = None, -1
    if climbed and climbed[0].measured is not None:
        base_ms = statistics.median(climbed[0].measured.blocks.times()[0])
        base_peak = climbed[0].measured.peak_bytes[0]
    rows = [_row(0, base, base_ms, base_peak, base_peak, {}, toggles)]
    chain: list[tuple[list[float], list[float]]] = []
    below = base
    for place, rung in enumerate(rungs[1:], 1):
        measured = rung.measured
        assert measured is not None
        if not measured.usable:
            rows.append(_row(place, rung, None, -1, base_peak, {}, toggles))
            continue
        chain.append(measured.blocks.times())
        cells = _speedups(measured, chain, floors, (below.config, rung.config), (base.config, rung.config))
        step_ms = statistics.median(chain[-1][1])
        rows.append(_row(place, rung, step_ms, measured.peak_bytes[1], base_peak, cells, toggles))
        below = rung
    return rows


def _speedups(
    measured: Measured,
    chain: Sequence[tuple[list[float], list[float]]],
    floors: Floors,
    arms: tuple[RunConfig, RunConfig],
    ends: tuple[RunConfig, RunConfig],
) -> dict[str, Cell]:
    """Against the rung below, as in a comparison's row, and against the baseline."""
    floor, floor_measured = floors(arms)
    result = measured.blocks.result(floor=floor, floor_measured=floor_measured, ended_by=measured.ended_by)
    assert result is not None
    cells: dict[str, Cell] = dict(comparison_row(result))
    del cells["a_step_ms_median"], cells["b_step_ms_median"]
    whole = chained(chain, seed=0)
    return cells | {
        "speedup_vs_baseline": whole.ratio,
        "ci_low_vs_baseline": whole.low,
        "ci_high_vs_baseline": whole.high,
        "verdict_vs_baseline": verdict(whole, floor=floors(ends)[0]),
    }


_SPEEDUP_COLUMNS = (
    *("speedup", "ci_low", "ci_high", "verdict", "n_pairs", "floor", "floor_measured", "dropped_blocks", "ended_by"),
    *("speedup_vs_baseline", "ci_low_vs_baseline", "ci_high_vs_baseline", "verdict_vs_baseline"),
)


def _row(
    place: int,
    rung: Rung,
    step_ms: float | None,
    peak_bytes: int,
    base_peak_bytes: int,
    speedups: Mapping[str, Cell],
    toggles: Mapping[str, str],
) -> dict[str, Cell]:
    return {
        "rung": place,
        "setting": rung.name,
        **{name: speedups.get(name) for name in _SPEEDUP_COLUMNS},
        **setting_cells(
            rung.config,
            step_ms=step_ms,
            peak_bytes=peak_bytes,
            base_peak_bytes=base_peak_bytes,
            checks=rung.checks,
            problem=None if rung.measured is None else rung.measured.problem,
            toggles=toggles,
        ),
    }
