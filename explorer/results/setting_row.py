"""What a table of settings says of each beside its speed-up: its time, memory, parity, proof, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from explorer.config import RunConfig
from explorer.results.checks import Checks, checks_cells

Cell = str | int | float | bool | None
Floors = Callable[[tuple[RunConfig, ...]], tuple[float, bool]]
"""The floor of a comparison of these arms, and whether it was measured."""


def setting_cells(
    config: RunConfig,
    *,
    step_ms: float | None,
    peak_bytes: int,
    base_peak_bytes: int,
    checks: Checks,
    problem: str | None,
    toggles: Mapping[str, str],
) -> dict[str, Cell]:
    """The columns of ``config``; bytes that were not measured are -1.

    ``toggles``: each toggle's first level by its name, in column order.
    """
    known = peak_bytes > 0 and base_peak_bytes > 0
    return {
        "step_ms_median": step_ms,
        "tokens_per_s": None if step_ms is None else config.batch * config.seq / step_ms * 1e3,
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
