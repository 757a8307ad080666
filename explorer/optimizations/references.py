"""What a configuration's numbers are held against. Imports no torch: who asks for a check needs none."""

from __future__ import annotations

import dataclasses

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.fused_gelu import TANH_GELUS


def plain_float32(config: RunConfig) -> RunConfig:
    """The reference for ``config``: every toggle at its first level, but dropout off; greedy text, of one prompt."""
    # One new token is asked for at first: how many there is room for shows once the model is loaded.
    plain = dataclasses.replace(config, levels=(), more_prompts=(), temperature=0.0, max_new_tokens=1)
    return registry.with_level(plain, "dropout", "off")


def torchs_own(config: RunConfig, activation: str) -> RunConfig:
    """The yardstick for ``config``: in its number formats, torch's own attention, and torch's GeLU where
    ``activation`` is one."""
    own = registry.with_level(plain_float32(config), "attention", "sdpa")
    if activation in TANH_GELUS:
        own = registry.with_level(own, "gelu", "torch")
    for name in ("precision", "weight_dtype"):
        own = own.with_level(name, config.level(name))
    return own


def is_reference(config: RunConfig) -> bool:
    """Whether ``config`` is its own reference but for dropout, so that there is nothing to check."""
    return registry.with_level(config, "dropout", "off").levels == plain_float32(config).levels
