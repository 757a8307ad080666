"""What a segment is called: what differs from the baseline, never the whole configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath

from explorer.config import RunConfig, Workload

# Fields that play no part in the other workload, and so no part in its labels.
_ONLY: Mapping[Workload, frozenset[str]] = {
    "train": frozenset({"text", "seq", "lr", "weight_decay", "grad_clip", "init_scale"}),
    "generate": frozenset(
        {
            *("prompt", "more_prompts", "max_new_tokens", "temperature", "top_k", "top_p"),
            *("repetition_penalty", "stop"),
        }
    ),
}
_LONGEST_VALUE = 24


def label(config: RunConfig, *, reference: RunConfig, toggles: Mapping[str, str]) -> str:
    """What sets ``config`` apart, such as ``+ precision bf16 + attention sdpa, batch 16`` or ``fp32 baseline``.

    Toggles are compared with their first levels, everything else with ``reference``.

    Args:
        config: the configuration to name.
        reference: what it is compared with: the session's first.
        toggles: each toggle's first level by its name, in the order in which they are named.
    """
    levels = dict(config.levels)
    changed = [f"+ {name} {levels[name]}" for name, first in toggles.items() if levels.get(name, first) != first]
    others = {"train": _ONLY["generate"], "generate": _ONLY["train"]}[config.workload]
    ignored = {"workload", "levels", "sample_every", *others}
    if config.workload != reference.workload:
        ignored |= _ONLY[config.workload]
    settings: list[str] = [config.workload] if config.workload != reference.workload else []
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        if field.name not in ignored and value != getattr(reference, field.name):
            settings.append(f"{field.name} {_short(field.name, value)}")
    # The first toggle's first level names the baseline: fp32.
    base = f"{next(iter(toggles.values()), '')} baseline".strip()
    return ", ".join([" ".join(changed) or base, *settings])


def _short(field: str, value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if field in ("model", "text"):
        text = PurePath(text).name or text  # Of a path, its end tells it apart.
    elif field == "prompt":
        text = repr(text)
    elif isinstance(value, tuple):
        text = ", ".join(map(repr, value)) or "none"
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
