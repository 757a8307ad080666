"""Presets: settings that belong together, as far as a device can run them. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo

Wanted = tuple[tuple[str, tuple[str, ...]], ...]
"""Toggles in the order in which they are set, each with its levels, the preferred one first."""

FRAMEWORK: Wanted = (
    ("weight_dtype", ("bf16", "fp16")),
    ("precision", ("bf16", "fp16", "tf32")),
    ("optimizer", ("fused",)),
)
ALGORITHM: Wanted = (*FRAMEWORK, ("dropout", ("off",)), ("attention", ("causal",)))
SYSTEM: Wanted = (
    *ALGORITHM,
    ("gelu", ("triton", "torch")),
    ("layer_norm", ("triton",)),
    ("vocab_padding", ("128",)),
    ("loss_impl", ("fused", "chunked")),
    ("decoder", ("torch",)),
)
# Compiled, a block's norms are fused with what is around them: a kernel of our own would stand in the way.
EVERYTHING: Wanted = (
    *ALGORITHM,
    ("gelu", ("torch",)),
    ("vocab_padding", ("128",)),
    ("loss_impl", ("fused", "chunked")),
    ("compile", ("model",)),
    ("cuda_graph", ("on",)),
    ("kv_cache", ("static",)),
    ("decoder", ("torch",)),
    ("decode_graph", ("on",)),
)
PRESETS: Mapping[str, Wanted] = {
    "baseline": (),
    "framework": FRAMEWORK,
    "algorithm": ALGORITHM,
    "system": SYSTEM,
    "everything": EVERYTHING,
}
"""The article's baseline, its tiers, each with those below it, and compiled and recorded besides. The bfloat16 stream
is in none: whether its rounding is worth its speed is to be decided by hand."""


def with_preset(config: RunConfig, name: str, device: DeviceInfo) -> RunConfig:
    """``config`` with exactly the toggles of preset ``name`` set.

    Each stands at the first of its levels that runs on ``device`` beside those before it, or where none does at its
    baseline.

    Raises:
        ValueError: there is no such preset; the message lists those there are.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset is called {name!r}; allowed: {', '.join(PRESETS)}")
    found = dataclasses.replace(config, levels=())
    for toggle, levels in PRESETS[name]:
        if config.workload not in registry.by_name(toggle).workloads:
            continue
        tried = (registry.with_level(found, toggle, level) for level in levels)
        found = next((c for c in tried if not registry.problems(c, device)), found)
    return found
