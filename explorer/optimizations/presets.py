"""Presets: toggles that belong together, as far as a device can run them. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.config import RunConfig, Workload
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo

Wanted = tuple[tuple[str, tuple[str, ...]], ...]
"""Toggles in the order in which they are set, each with its levels, the preferred one first."""

TRAIN_FRAMEWORK: Wanted = (("precision", ("bf16", "fp16", "tf32")), ("optimizer", ("fused",)))
TRAIN_ALGORITHM: Wanted = (*TRAIN_FRAMEWORK, ("dropout", ("off",)), ("attention", ("causal",)))
TRAIN_SYSTEM: Wanted = (
    *TRAIN_ALGORITHM,
    ("gelu", ("triton", "torch")),
    ("layer_norm", ("triton",)),
    ("vocab_padding", ("128",)),
    ("loss_impl", ("fused", "chunked")),
)
# Compiled, a block's norms are fused with what is around them: a kernel of our own would stand in the way. GeLU with
# its bias and the joined gradient do not: on an H200, B = 64, 111.60 ms a step where the plain Triton GeLU took 113.45
# (see assets/RESULTS.md).
TRAIN_EVERYTHING: Wanted = (
    *TRAIN_ALGORITHM,
    ("gelu", ("triton_bias", "torch")),
    ("qkv_gradient", ("joined",)),
    ("residual", ("bf16",)),
    ("vocab_padding", ("128",)),
    ("loss_impl", ("fused", "chunked")),
    ("compile", ("model",)),
    ("cuda_graph", ("on",)),
)
# With weights of 16 bits autocast has nothing left to do, and the Triton decoder refuses it. SDPA without a mask goes
# with a cache that grows, but not with the static one that decoder and graph need.
GENERATE_FRAMEWORK: Wanted = (("weight_dtype", ("bf16", "fp16")),)
GENERATE_ALGORITHM: Wanted = (*GENERATE_FRAMEWORK, ("attention", ("sdpa",)))
GENERATE_SYSTEM: Wanted = (
    *GENERATE_ALGORITHM,
    ("kv_cache", ("static",)),
    ("gelu", ("torch",)),
    ("decoder", ("triton", "torch")),
)
GENERATE_EVERYTHING: Wanted = (*GENERATE_SYSTEM, ("decode_graph", ("on",)))
SLOW_ON_CPU = frozenset((toggle, level) for toggle in ("precision", "weight_dtype") for level in ("bf16", "fp16"))
"""Measured with mini, on a CPU without AVX-512 or AMX: a training step of 0.9 s took 10.6 s with bf16."""
WHY_SLOW = "numbers of 16 bits take a CPU longer, not shorter"
PRESETS: Mapping[str, Mapping[Workload, Wanted]] = {
    "baseline": {"train": (), "generate": ()},
    "framework": {"train": TRAIN_FRAMEWORK, "generate": GENERATE_FRAMEWORK},
    "algorithm": {"train": TRAIN_ALGORITHM, "generate": GENERATE_ALGORITHM},
    "system": {"train": TRAIN_SYSTEM, "generate": GENERATE_SYSTEM},
    "everything": {"train": TRAIN_EVERYTHING, "generate": GENERATE_EVERYTHING},
}
"""The article's baseline, its tiers, each with those below it, and the fastest that was measured, compiled and
recorded. The bfloat16 stream, which rounds, is in the last alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A level of a preset that cannot run here."""

    toggle: str
    level: str
    instead: str
    """The level that stands in its place."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A configuration with a preset's toggles set, as far as the device can run them."""

    config: RunConfig
    left_out: tuple[LeftOut, ...]


def with_preset(config: RunConfig, name: str, device: DeviceInfo) -> Fitted:
    """``config`` with exactly the toggles of preset ``name`` set.

    Each stands at the first of its levels that runs on ``device`` beside those before it, and is not known to be slow
    there; or where none does at its baseline.

    Raises:
        ValueError: there is no such preset; the message lists those there are.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset is called {name!r}; allowed: {', '.join(PRESETS)}")
    found = dataclasses.replace(config, levels=())
    reasons: list[tuple[str, str, str]] = []
    for toggle, levels in PRESETS[name][config.workload]:
        for level in levels:
            tried = registry.with_level(found, toggle, level)
            why = next(iter(registry.problems(tried, device).values()), None)
            if device.kind == "cpu" and (toggle, level) in SLOW_ON_CPU:
                why = WHY_SLOW
            if why is None:
                found = tried
                break
            if level == levels[0]:  # why not the one that is preferred; those after it are no news
                reasons.append((toggle, level, why))
    return Fitted(config=found, left_out=_left_out(found, reasons))


def with_levels(config: RunConfig, levels: Sequence[tuple[str, str]], device: DeviceInfo) -> Fitted:
    """``config`` with exactly these toggles set, but for those that cannot run on ``device`` beside the others.

    Raises:
        ValueError: no such toggle or level.
    """
    found = registry.normalised(dataclasses.replace(config, levels=tuple(levels)))
    reasons: list[tuple[str, str, str]] = []
    while problems := registry.problems(found, device):
        for toggle, why in problems.items():
            reasons.append((toggle, found.level(toggle) or "", why))
            found = found.with_level(toggle, None)
    return Fitted(config=found, left_out=_left_out(found, reasons))


def _left_out(config: RunConfig, reasons: Sequence[tuple[str, str, str]]) -> tuple[LeftOut, ...]:
    now = registry.levels_of(config)
    return tuple(
        LeftOut(toggle=toggle, level=level, instead=now[toggle], why=why.rstrip(".")) for toggle, level, why in reasons
    )
