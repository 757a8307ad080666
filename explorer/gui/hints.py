"""What the message bar says when nothing is wrong: the next thing to do, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.config import RunConfig
from explorer.messages import Progress
from explorer.models import MODELS
from explorer.optimizations.registry import OPTIMIZATIONS, by_name, levels_of


def model_words(config: RunConfig) -> str:
    """The model as a person says it."""
    if config.model in MODELS:
        return f"{config.model} ({MODELS[config.model].parameters / 1e6:,.0f} M parameters)"
    return "the model in the folder"


def first_step(config: RunConfig) -> str:
    """What Start will do, and what to do then."""
    if config.workload == "generate":
        return f"Press Start (F5): {model_words(config)} goes on with the prompt at the right. Then flip one toggle."
    changed = [f"{name} {level}" for name, level in config.levels]
    how = f"with {', '.join(changed)}" if changed else "in fp32, nothing optimized"
    return f"Press Start (F5): {model_words(config)} trains on text, {how}. Then flip {_candidate(config)}."


def next_step(config: RunConfig) -> str:
    """What to try once the first run is steady."""
    return (
        f"Steady now. Flip one toggle, such as {_candidate(config)}: it takes effect at the next step, the weights "
        "stay, and the curves mark the place."
    )


def after_run(outcome: str, config: RunConfig) -> str:
    """What to do with a run that ended well."""
    ended = "Finished" if outcome == "completed" else "Stopped"
    return (
        f"{ended}. For a verdict: pin these settings as A (Ctrl+Shift+A), change one, and press Compare (F6). "
        "Ctrl+E exports the table."
    )


def reasons(found: Mapping[str, str]) -> str:
    """The registry's reasons, by toggle, as one line."""
    return " ".join(f"{by_name(name).label}: {reason.rstrip('.')}." for name, reason in found.items())


def progress(event: Progress) -> str:
    """What the run is doing, and how far it is."""
    unit = f" {event.unit}" if event.unit else ""
    if event.done is not None and event.total:
        return f"{event.activity}: {event.done:,.0f} of {event.total:,.0f}{unit}"
    if event.done is not None:
        return f"{event.activity}: {event.done:,.0f}{unit}"
    return f"{event.activity}…"


def _candidate(config: RunConfig) -> str:
    """The first toggle of this workload that is still at its first level."""
    levels = levels_of(config)
    for optimization in OPTIMIZATIONS:
        if config.workload in optimization.workloads and levels[optimization.name] == optimization.levels[0].id:
            return optimization.label.lower()
    return "one toggle"
