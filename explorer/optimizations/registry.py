"""Every toggle there is. A new one adds its file and its line here; nothing else names toggles."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack

from explorer.config import RunConfig
from explorer.optimizations.attention import Attention
from explorer.optimizations.base import Optimization, Run
from explorer.optimizations.checkpointing import Checkpointing
from explorer.optimizations.compiled import Compiled
from explorer.optimizations.cuda_graph import CudaGraph
from explorer.optimizations.data_loading import BatchLoading
from explorer.optimizations.decode_graph import DecodeGraph
from explorer.optimizations.decoder import DecoderCode
from explorer.optimizations.dropout import Dropout
from explorer.optimizations.fused_gelu import FusedGelu
from explorer.optimizations.grad_accumulation import GradAccumulation
from explorer.optimizations.kv_cache import KvCache
from explorer.optimizations.layer_norm import LayerNormKernel
from explorer.optimizations.linear import LinearFormat
from explorer.optimizations.loss_impl import LossImpl
from explorer.optimizations.optimizer import FusedOptimizer
from explorer.optimizations.precision import Precision
from explorer.optimizations.qkv_gradient import QkvGradient
from explorer.optimizations.residual import Residual
from explorer.optimizations.sync_every_step import SyncEveryStep
from explorer.optimizations.vocab_padding import VocabPadding
from explorer.optimizations.weight_dtype import WeightDtype
from explorer.results.environment import DeviceInfo

OPTIMIZATIONS: tuple[Optimization, ...] = (
    Precision(),
    WeightDtype(),
    FusedOptimizer(),
    Dropout(),
    Attention(),
    KvCache(),
    FusedGelu(),
    LayerNormKernel(),
    QkvGradient(),
    Residual(),
    VocabPadding(),
    LossImpl(),
    DecoderCode(),
    DecodeGraph(),
    Compiled(),
    Checkpointing(),
    GradAccumulation(),
    BatchLoading(),
    SyncEveryStep(),
    CudaGraph(),
    LinearFormat(),
)
"""In the order in which panel, command line and ladder show them: by tier."""


def by_name(name: str) -> Optimization:
    """The toggle called ``name``.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    for optimization in OPTIMIZATIONS:
        if optimization.name == name:
            return optimization
    raise ValueError(f"no toggle is called {name!r}; allowed: {', '.join(o.name for o in OPTIMIZATIONS)}")


def there_is(name: str, level: str) -> bool:
    """Whether a toggle is called ``name`` and has this level: what another version wrote down may name others."""
    return any(optimization.name == name and level in optimization.level_ids() for optimization in OPTIMIZATIONS)


def baseline_levels() -> Mapping[str, str]:
    """Each toggle's first level, by its name."""
    return {o.name: o.levels[0].id for o in OPTIMIZATIONS}


def levels_of(config: RunConfig) -> Mapping[str, str]:
    """Each toggle's level in ``config``, those left alone included."""
    asked = dict(config.levels)
    return {o.name: asked.get(o.name) or o.levels[0].id for o in OPTIMIZATIONS}


def with_level(config: RunConfig, name: str, level: str) -> RunConfig:
    """``config`` with toggle ``name`` at ``level``, in the one form in which equal settings compare equal.

    Raises:
        ValueError: no such toggle or level.
    """
    optimization = by_name(name)
    optimization.level(level)
    return config.with_level(name, None if level == optimization.levels[0].id else level)


def normalised(config: RunConfig) -> RunConfig:
    """``config`` checked against the registry and without toggles at their first level.

    Raises:
        ValueError: no such toggle or level.
    """
    clean = dataclasses.replace(config, levels=())
    for name, level in config.levels:
        clean = with_level(clean, name, level)
    return clean


def conflict(config: RunConfig, name: str, device: DeviceInfo) -> str | None:
    """Why toggle ``name`` cannot run at its level beside the others in ``config``, or None."""
    levels = levels_of(config)
    level = by_name(name).level(levels[name])
    if config.workload not in level.workloads:
        return f"{name}={level.id} runs only with workload {' or '.join(level.workloads)}"
    unfit = by_name(name).unfit(level.id, config)
    if unfit:
        return unfit
    for need in by_name(name).needs:
        here = device.kind in need.kinds and config.workload in need.workloads
        if here and need.applies(levels[name], levels) and levels[need.other] not in need.allowed:
            return f"{need.reason} ({need.other} is {levels[need.other]}; needed: {' or '.join(need.allowed)})"
    return None


def problems(config: RunConfig, device: DeviceInfo) -> Mapping[str, str]:
    """By toggle, why it cannot run as ``config`` asks on ``device``; empty where everything can.

    A toggle that plays no part in the workload is left out: it is not entered.
    """
    found = {}
    levels = levels_of(config)
    for optimization in OPTIMIZATIONS:
        level = levels[optimization.name]
        if config.workload not in optimization.workloads or level == optimization.levels[0].id:
            continue
        reason = optimization.unavailable(level, device) or conflict(config, optimization.name, device)
        if reason:
            found[optimization.name] = reason
    return found


def may_cost_process(config: RunConfig) -> bool:
    """Whether the first steps with ``config`` may end, spoil or hold up the process that they run in."""
    return any(optimization.may_cost_process for optimization, _ in _set(config))


def changes(before: RunConfig, after: RunConfig) -> tuple[str, ...]:
    """What differs, toggles first, each as ``name old -> new``."""
    old, new = levels_of(before), levels_of(after)
    found = [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]
    for field in dataclasses.fields(RunConfig):
        was, now = getattr(before, field.name), getattr(after, field.name)
        if field.name != "levels" and was != now:
            found.append(f"{field.name} {was} -> {now}")
    return tuple(found)


def enter(stack: ExitStack, run: Run) -> None:
    """Put ``run`` under every toggle of ``run.config`` in stage order; ``stack`` takes them off again."""
    enter_process_wide(stack, run)
    enter_on_run(stack, run)


def enter_process_wide(stack: ExitStack, run: Run) -> None:
    """Only what ``enter`` does to the process."""
    for optimization, level in _set(run.config):
        stack.enter_context(optimization.process_wide(run, level))


def enter_on_run(stack: ExitStack, run: Run) -> None:
    """Only what ``enter`` does to the run."""
    for optimization, level in _set(run.config):
        stack.enter_context(optimization.applied(run, level))


def _set(config: RunConfig) -> list[tuple[Optimization, str]]:
    """The toggles that play a part in ``config`` and do not stand at their first level, in stage order."""
    levels = levels_of(config)
    return [
        (optimization, levels[optimization.name])
        for optimization in sorted(OPTIMIZATIONS, key=lambda o: o.stage)
        if config.workload in optimization.workloads and levels[optimization.name] != optimization.levels[0].id
    ]
