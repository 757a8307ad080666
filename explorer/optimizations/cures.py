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


def cures(causes: Sequence[Cause], config: RunConfig, device: DeviceInfo) -> tuple[Cure, ...]:
    """What to try next against ``causes``, the most important first; all of it runs on ``device`` beside the rest."""
    found: dict[str, Cure] = {}
    levels = registry.levels_of(config)
    for toggle, wanted in (entry for cause in causes for entry in WANTED[cause]):
        if toggle in found or config.workload not in registry.by_name(toggle).workloads:
            continue
        better = wanted[: wanted.index(levels[toggle])] if levels[toggle] in wanted else wanted
        for level in better:
            if not registry.problems(registry.with_level(config, toggle, level), device):
                found[toggle] = Cure(toggle=toggle, level=level)
                break
    return tuple(found.values())[:MOST]
