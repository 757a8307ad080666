"""The two arms of a comparison: made alike in all that is not compared, and called by what sets them apart."""

from __future__ import annotations

import dataclasses

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.results.environment import Environment
from explorer.results.label import label

Arms = tuple[RunConfig, RunConfig]


def comparable(config: RunConfig, *, keep_dropout: bool) -> RunConfig:
    """``config`` with dropout off where it trains, unless it was set or ``keep_dropout``: its draws differ between
    kernels.
    """
    if keep_dropout or config.workload != "train" or config.level("dropout") is not None:
        return config
    return registry.with_level(config, "dropout", "off")


def fair(a: RunConfig, b: RunConfig, *, here: Environment | None, keep_dropout: bool) -> Arms:
    """A and B as they are to be measured: of one seed, on one device, and with dropout off in both.

    Dropout draws differ between kernels, so it is left out unless the arms differ in it or ``keep_dropout``.

    Args:
        here: the machine, by which "auto" and the device it stands for are one; None: not known yet.
    Raises:
        ValueError: they are of different workloads or on different devices.
    """
    if a.workload != b.workload:
        raise ValueError(f"A is to {a.workload} and B to {b.workload}; compare two of one workload")
    devices = [config.device if here is None else here.device(config.device).id for config in (a, b)]
    if devices[0] != devices[1]:
        raise ValueError(f"A is for {devices[0]} and B for {devices[1]}; compare on one device")
    b = dataclasses.replace(b, seed=a.seed, device=a.device)
    if a.workload == "train" and not keep_dropout and a.level("dropout") == b.level("dropout"):
        a, b = (registry.with_level(arm, "dropout", "off") for arm in (a, b))
    return a, b


def names(arms: Arms) -> tuple[str, str]:
    """What each arm is called: A by itself, B by what differs from A."""
    a = label(arms[0], reference=arms[0], toggles=registry.baseline_levels())
    return a, ", ".join(registry.changes(*arms)) or f"{a} again"
