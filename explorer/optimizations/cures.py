"""What to flip next, by what a diagnosis found. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.presets import Wanted
from explorer.results.diagnosis import Cause
from explorer.results.environment import DeviceInfo

MOST = 3
"""Suggested at once: they are to be tried one at a time."""

_FEWER_LAUNCHES: Wanted = (
    ("kv_cache", ("static",)),
    ("decoder", ("triton", "torch")),
    ("decode_graph", ("on",)),
    ("cuda_graph", ("on",)),
    ("compile", ("model", "blocks")),
    ("optimizer", ("fused",)),
    ("gelu", ("triton", "torch")),
    ("attention", ("causal", "sdpa")),
)
_NO_WAITS: Wanted = (
    ("sync_every_step", ("off",)),
    ("data_loading", ("prefetch",)),
    ("optimizer", ("fused",)),
)
WANTED: Mapping[Cause, Wanted] = {
    "failed": (),
    "loss": (("precision", ("bf16", "fp32")),),
    "growth": (),
    "data": (("data_loading", ("prefetch",)),),
    "launch": _FEWER_LAUNCHES,
    "small": _FEWER_LAUNCHES,
    "memory": (
        ("weight_dtype", ("int8", "bf16", "fp16")),
        ("attention", ("causal", "sdpa")),
        ("precision", ("bf16", "fp16")),
        ("gelu", ("triton", "torch")),
        ("loss_impl", ("fused", "chunked")),
        ("compile", ("model", "blocks")),
        ("dropout", ("off",)),
        ("optimizer", ("fused",)),
    ),
    "compute": (
        ("precision", ("bf16", "fp16", "tf32")),
        ("checkpointing", ("off", "alternate")),
        ("attention", ("causal", "sdpa")),
        ("vocab_padding", ("128",)),
    ),
    "device": (),
    "host": _FEWER_LAUNCHES,
    "waits": _NO_WAITS,
}
"""Toggles that help against a cause, the most helpful first, each with its levels, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """One toggle to flip."""

    toggle: str
    level: str
    reason: str = ""
    """Why it cannot be flipped here; empty where it can."""


def cures(causes: Sequence[Cause], config: RunConfig, device: DeviceInfo) -> tuple[Cure, ...]:
    """What to try next against ``causes``, the most important first; all of it runs on ``device`` beside the rest."""
    found: dict[str, Cure] = {}
    for cure in (cure for cause in causes for cure in answers(cause, config, device)):
        if not cure.reason:
            found.setdefault(cure.toggle, cure)
    return tuple(found.values())[:MOST]


def answers(cause: Cause, config: RunConfig, device: DeviceInfo) -> tuple[Cure, ...]:
    """All toggles that help against ``cause`` and are not set yet, the most helpful first.

    Each with the best level that runs on ``device`` beside the rest, or where none does with the best one and why not.
    """
    levels = registry.levels_of(config)
    found = []
    for toggle, wanted in WANTED[cause]:
        better = wanted[: wanted.index(levels[toggle])] if levels[toggle] in wanted else wanted
        if better and config.workload in registry.by_name(toggle).workloads:
            tried = [
                Cure(toggle=toggle, level=level, reason=obstacle(config, toggle, level, device)) for level in better
            ]
            found.append(next((cure for cure in tried if not cure.reason), tried[0]))
    return tuple(found)


def obstacle(config: RunConfig, toggle: str, level: str, device: DeviceInfo) -> str:
    """Why ``config`` with ``toggle`` at ``level`` cannot run on ``device``; empty where it can."""
    found = registry.problems(registry.with_level(config, toggle, level), device)
    return found.get(toggle) or "; ".join(f"{name}: {reason}" for name, reason in found.items())
