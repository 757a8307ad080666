"""An attribution as rows: every setting against the baseline, then the effects."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from explorer.config import RunConfig
from explorer.results.attribution import Effect, Kind, Setting, effects
from explorer.results.blocks import comparison_row
from explorer.results.checks import Checks
from explorer.results.comparison import Verdict, verdict
from explorer.results.measured import Measured
from explorer.results.sample import NAN
from explorer.results.setting_row import Cell, Yardsticks, setting_cells

_SPEEDUP_COLUMNS = (
    "speedup",
    "ci_low",
    "ci_high",
    "verdict",
    "n_pairs",
    "floor",
    "floor_measured",
    "dropped_blocks",
    "ended_by",
)

_TOGETHER: Mapping[Verdict, str] = {
    "faster": "more together",
    "slower": "less together",
    "no difference shown": "none shown",
    "unsettled": "unsettled",
}
"""What a verdict on an interaction's factor means."""


_JOINED: Mapping[Kind, str] = {"interaction": " x ", "beside another": " beside "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One setting of the toggles."""

    setting: Setting
    config: RunConfig
    measured: Measured | None = None
    """Against the baseline; None of the baseline itself, and where it was not measured before a stop."""
    checks: Checks = field(default_factory=Checks)


def name_of(setting: Setting) -> str:
    """What ``setting`` is called."""
    return " ".join(sorted(setting)) or "baseline"


def effects_of(tried: Sequence[Tried], toggles: Sequence[str]) -> Sequence[Effect]:
    """The effects of ``toggles``; none while a setting has no ratio, since each effect is made of all of them."""
    times = {
        one.setting: one.measured.blocks.times() for one in tried if one.measured is not None and one.measured.usable
    }
    return effects(times, toggles) if len(times) == 2 ** len(toggles) - 1 else ()


def attribution_rows(
    tried: Sequence[Tried], found: Sequence[Effect], yardsticks: Yardsticks, *, toggles: Mapping[str, str]
) -> list[dict[str, Cell]]:
    """A row a setting, the baseline first, then a row an effect.

    Args:
        tried: the settings.
        found: their effects.
        yardsticks: what they are held against.
        toggles: each toggle's first level by its name, in column order.
    """
    base = tried[0]
    usable = [one.measured for one in tried if one.measured is not None and one.measured.usable]
    base_ms = statistics.median([ms for measured in usable for ms in measured.blocks.times()[0]]) if usable else None
    base_peak = max((measured.peak_bytes[0] for measured in usable), default=-1)
    base_joules = [m.joules_per_token[0] for m in usable if not math.isnan(m.joules_per_token[0])]
    rows: list[dict[str, Cell]] = []
    for one in tried:
        speedups: Mapping[str, Cell] = {}
        step_ms, peak, joules = None, -1, NAN
        if one is base:
            step_ms, peak = base_ms, base_peak
            joules = statistics.median(base_joules) if base_joules else NAN
        if one.measured is not None and one.measured.usable:
            floor, floor_measured = yardsticks.floors((base.config, one.config))
            result = one.measured.blocks.result(
                floor=floor, floor_measured=floor_measured, ended_by=one.measured.ended_by
            )
            assert result is not None
            speedups, step_ms, peak = comparison_row(result), result.b_step_ms, one.measured.peak_bytes[1]
            joules = one.measured.joules_per_token[1]
        rows.append(
            {
                "kind": "setting",
                "of": name_of(one.setting),
                **{name: speedups.get(name) for name in _SPEEDUP_COLUMNS},
                **setting_cells(
                    one.config,
                    step_ms=step_ms,
                    peak_bytes=peak,
                    base_peak_bytes=base_peak,
                    joules_per_token=joules,
                    yardsticks=yardsticks,
                    checks=one.checks,
                    problem=None if one.measured is None else one.measured.problem,
                    toggles=toggles,
                ),
            }
        )
    floor, floor_measured = yardsticks.floors(tuple(one.config for one in tried))
    return rows + [_effect_row(effect, floor, floor_measured, rows[0]) for effect in found]


def _effect_row(effect: Effect, floor: float, floor_measured: bool, like: Mapping[str, Cell]) -> dict[str, Cell]:
    i = effect.interval
    row: dict[str, Cell] = dict.fromkeys(like)
    shown = verdict(i, floor=floor)
    return row | {
        "kind": effect.kind,
        "of": _JOINED.get(effect.kind, "").join(effect.of),
        "speedup": i.ratio,
        "ci_low": i.low,
        "ci_high": i.high,
        "verdict": _TOGETHER[shown] if effect.kind == "interaction" else shown,
        "n_pairs": i.n_pairs,
        "floor": floor,
        "floor_measured": floor_measured,
    }
