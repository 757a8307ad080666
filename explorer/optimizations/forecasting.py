"""The memory that a configuration will take, from what its toggles say. Imports no torch: it is shown before a run."""

from __future__ import annotations

import dataclasses
import functools
import operator

from explorer.config import LIMITS, RunConfig
from explorer.models import ModelShape
from explorer.optimizations import registry
from explorer.results import forecast
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import Forecast, MemoryTerms


def terms_of(config: RunConfig) -> MemoryTerms:
    """What the toggles of ``config`` say, those left at their first level included."""
    levels = registry.levels_of(config)
    said = [
        o.memory_terms[levels[o.name]]
        for o in registry.OPTIMIZATIONS
        if config.workload in o.workloads and levels[o.name] in o.memory_terms
    ]
    return functools.reduce(operator.or_, said, MemoryTerms())


def memory_forecast(config: RunConfig, shape: ModelShape) -> Forecast:
    """The memory of a training step of ``config``.

    Raises:
        ValueError: it generates; that is not forecast.
    """
    if config.workload != "train":
        raise ValueError(f"the workload is {config.workload}; only training's memory is forecast")
    return forecast.step_memory(shape, batch=config.batch, seq=config.seq, terms=terms_of(config))


def largest_batch(config: RunConfig, shape: ModelShape, free_bytes: int) -> int:
    """The largest batch that needs no more than ``free_bytes``, everything else as in ``config``; 0: not even one."""

    def fits(batch: int) -> bool:
        return memory_forecast(dataclasses.replace(config, batch=batch), shape).needed_bytes <= free_bytes

    return forecast.largest_batch(fits, int(LIMITS["batch"][1]))


def smallest_change(config: RunConfig, shape: ModelShape, device: DeviceInfo) -> tuple[str, str, Forecast] | None:
    """The one toggle whose change alone saves most of a step's memory, its level, and the forecast with it.

    None where no change that can run on ``device`` saves a tenth.
    """
    most = memory_forecast(config, shape).peak_bytes * 0.9
    best: tuple[str, str, Forecast] | None = None
    for optimization in registry.OPTIMIZATIONS:
        for level in optimization.memory_terms:
            other = registry.with_level(config, optimization.name, level)
            if registry.problems(other, device):
                continue
            expected = memory_forecast(other, shape)
            if expected.peak_bytes < most:
                most, best = expected.peak_bytes, (optimization.name, level, expected)
    return best
