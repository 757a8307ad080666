"""What the message bar says when nothing is wrong: the next thing to do, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.config import RunConfig
from explorer.gui.language import from_below, tr
from explorer.messages import Progress
from explorer.models import MODELS
from explorer.optimizations.registry import OPTIMIZATIONS, by_name, levels_of


def model_words(config: RunConfig) -> str:
    """The model as a person says it."""
    if config.model in MODELS:
        return tr(
            "{model} ({millions:,.0f} M parameters)", model=config.model, millions=MODELS[config.model].parameters / 1e6
        )
    return tr("the model in the folder")


def first_step(config: RunConfig) -> str:
    """What Start will do, and what to do then."""
    if config.workload == "generate":
        return tr(
            "Press Start (F5): {model} goes on with the prompt at the right. Then flip one toggle.",
            model=model_words(config),
        )
    changed = [f"{name} {level}" for name, level in config.levels]
    how = tr("with {settings}", settings=", ".join(changed)) if changed else tr("in fp32, nothing optimized")
    return tr(
        "Press Start (F5): {model} trains on text, {how}. Then flip {toggle}.",
        model=model_words(config),
        how=how,
        toggle=_candidate(config),
    )


def next_step(config: RunConfig) -> str:
    """What to try once the first run is steady."""
    return tr(
        "Steady now. Flip one toggle, such as {toggle}: it takes effect at the next step, the weights stay, and the "
        "curves mark the place.",
        toggle=_candidate(config),
    )


def after_run(outcome: str, config: RunConfig) -> str:
    """What to do with a run that ended well."""
    ended = tr("Finished.") if outcome == "completed" else tr("Stopped.")
    return tr(
        "{ended} For a verdict: pin these settings as A (Ctrl+Shift+A), change one, and press Compare (F6). Ctrl+E "
        "exports the table.",
        ended=ended,
    )


def stopped_early(config: RunConfig) -> str:
    """After a run that was stopped while it was still being made ready."""
    return tr("Stopped before the first step. {next}", next=first_step(config))


def reasons(found: Mapping[str, str]) -> str:
    """The registry's reasons, by toggle, as one line."""
    return " ".join(
        tr("{toggle}: {reason}.", toggle=tr(by_name(name).label), reason=from_below(reason).rstrip(".。"))
        for name, reason in found.items()
    )


def progress(event: Progress) -> str:
    """What the run is doing, and how far it is."""
    activity, unit = from_below(event.activity), f" {from_below(event.unit)}" if event.unit else ""
    if event.done is not None and event.total:
        return tr(
            "{activity}: {done:,.0f} of {total:,.0f}{unit}",
            activity=activity,
            done=event.done,
            total=event.total,
            unit=unit,
        )
    if event.done is not None:
        return tr("{activity}: {done:,.0f}{unit}", activity=activity, done=event.done, unit=unit)
    return f"{activity}…"


def _candidate(config: RunConfig) -> str:
    """The first toggle of this workload that is still at its first level."""
    levels = levels_of(config)
    for optimization in OPTIMIZATIONS:
        if config.workload in optimization.workloads and levels[optimization.name] == optimization.levels[0].id:
            return tr(optimization.label).lower()
    return tr("one toggle")
