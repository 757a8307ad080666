"""What an experiment is of where the person names nothing: the toggles that are set, or those that mostly help."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from explorer.config import RunConfig
from explorer.experiments.arms import comparable
from explorer.experiments.attribution import settings
from explorer.experiments.ladder import Addition, addition
from explorer.models import shape_of
from explorer.optimizations import registry
from explorer.optimizations.presets import with_preset
from explorer.results.environment import DeviceInfo

PRESET = "system"
"""Its toggles, where none is set."""
FACTORIAL = 3
"""Toggles of an attribution: eight settings."""
MOST_BATCH = {"cuda": 64, "cpu": 8}


def without_toggles(config: RunConfig) -> RunConfig:
    """``config`` with every toggle at its first level, but for dropout, which is off: a ladder's baseline."""
    return comparable(dataclasses.replace(config, levels=(), sample_every=0), keep_dropout=False)


def rungs(config: RunConfig, device: DeviceInfo) -> Sequence[Addition]:
    """The toggles that ``config`` has set, one at a time, in an order in which each runs beside those before it."""
    base = without_toggles(config)
    waiting = _additions(base, config) or _additions(base, with_preset(config, PRESET, device).config)
    found: list[Addition] = []
    below = base
    while waiting:
        fits = next((one for one in waiting if not registry.problems(one.to(below), device)), None)
        if fits is None:
            break
        waiting.remove(fits)
        found.append(fits)
        below = fits.to(below)
    return found


def factorial(config: RunConfig, device: DeviceInfo) -> Sequence[Addition]:
    """The first of ``rungs`` that run in every combination."""
    base = without_toggles(config)
    found: list[Addition] = []
    for one in rungs(config, device):
        tried = [*found, one]
        if len(tried) < 2 or all(not registry.problems(c, device) for c in settings(base, tried).values()):
            found = tried
        if len(found) == FACTORIAL:
            break
    return found


def batches(device: DeviceInfo) -> Sequence[int]:
    """Batch sizes of a sweep: powers of two."""
    return [2**power for power in range(MOST_BATCH[device.kind].bit_length())]


def seqs(config: RunConfig) -> Sequence[int]:
    """Sequence lengths of a sweep: the model's longest, half and a quarter of it."""
    shape = shape_of(config.model)
    longest = config.seq if shape is None else shape.positions
    return sorted({max(longest // part, 8) for part in (4, 2, 1)})


def _additions(base: RunConfig, config: RunConfig) -> list[Addition]:
    """What ``config`` has set and ``base`` has not, in the registry's order."""
    old, new = registry.levels_of(base), registry.levels_of(config)
    relevant = (o for o in registry.OPTIMIZATIONS if config.workload in o.workloads)
    first = registry.baseline_levels()
    return [addition(f"{o.name}={new[o.name]}") for o in relevant if new[o.name] not in (old[o.name], first[o.name])]
