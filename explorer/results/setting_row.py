"""What a table of settings says of each beside its speed-up: its time, memory, parity, proof, and what it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from explorer.config import RunConfig
from explorer.results.checks import Checks, checks_cells
from explorer.results.flops import Utilization, flop_per_token_of, utilization_of
from explorer.results.sample import NAN

Cell = str | int | float | bool | None
Floors = Callable[[tuple[RunConfig, ...]], tuple[float, bool]]
"""The floor of a comparison of these arms, and whether it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardsticks:
    """What a table's figures are held against."""

    floors: Floors
    device_name: str | None = None
    """By which a published peak is found."""
    ceiling_tflop_per_s: float | None = None
    """The 16-bit matrix product that this device was seen to do; None: not measured."""

    def utilization(self, config: RunConfig, tokens_per_s: float) -> Utilization:
        """What ``tokens_per_s`` of ``config`` comes to."""
        return utilization_of(flop_per_token_of(config), tokens_per_s, self.ceiling_tflop_per_s, self.device_name)


def setting_cells(
    config: RunConfig,
    *,
    step_ms: float | None,
    peak_bytes: int,
    base_peak_bytes: int,
    joules_per_token: float = NAN,
    yardsticks: Yardsticks,
    checks: Checks,
    problem: str | None,
    toggles: Mapping[str, str],
) -> dict[str, Cell]:
    """The columns of ``config``; bytes that were not measured are -1.

    ``toggles``: each toggle's first level by its name, in column order.
    """
    known = peak_bytes > 0 and base_peak_bytes > 0
    tokens_per_s = None if step_ms is None else config.batch * config.seq / step_ms * 1e3
    done = Utilization() if tokens_per_s is None else yardsticks.utilization(config, tokens_per_s)
    return {
        "step_ms_median": step_ms,
        "tokens_per_s": tokens_per_s,
        "tflop_per_s": _known(done.tflop_per_s),
        "mfu_measured": _known(done.measured),
        "mfu_published": _known(done.published),
        "joules_per_token": _known(joules_per_token),
        "peak_allocated_bytes": peak_bytes if peak_bytes > 0 else None,
        "memory_ratio": peak_bytes / base_peak_bytes if known else None,
        **checks_cells(checks),
        "problem": problem,
        **{name: config.level(name) or first for name, first in toggles.items()},
        "batch": config.batch,
        "seq": config.seq,
        "model": config.model,
        "weights": config.weights,
        "seed": config.seed,
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
