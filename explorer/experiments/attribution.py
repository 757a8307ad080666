"""Attribution: all 2^k settings of some toggles, each measured by turns with the baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from explorer.config import RunConfig
from explorer.experiments.ladder import Addition
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps
from explorer.results.attribution import Setting, settings_of
from explorer.results.attribution_rows import Tried

MOST_TOGGLES = 5


def settings(base: RunConfig, toggles: Sequence[Addition]) -> Mapping[Setting, RunConfig]:
    """The configuration of each setting, the fewest toggles first.

    Raises:
        ValueError: a toggle is named twice, changes nothing, or there are fewer than two or more than five.
    """
    names = [toggle.name for toggle in toggles]
    if not 2 <= len(toggles) <= MOST_TOGGLES:
        raise ValueError(f"{len(toggles)} toggles; give 2 to {MOST_TOGGLES}: there are 2^k settings to measure")
    touched = [name for toggle in toggles for name, _ in toggle.levels]
    if len(set(touched)) != len(touched):
        raise ValueError(f"a toggle is named twice: {', '.join(names)}")
    by_name = dict(zip(names, toggles, strict=True))
    found = {}
    for setting in settings_of(names):
        config = base
        for name in names:
            if name in setting:
                before, config = config, by_name[name].to(config)
                if config == before:
                    raise ValueError(f"{name} changes nothing: the baseline has it already")
        found[setting] = config
    return found


def attribute(
    configs: Mapping[Setting, RunConfig], series: Series, *, parity: bool, proof: bool
) -> Steps[Sequence[Tried]]:
    """Compare each setting with the empty one, as far as it came. The worker must be ready."""
    base = configs[frozenset()]
    tried: list[Tried] = []
    for place, (setting, config) in enumerate(configs.items()):
        measured = None
        if setting:
            series.on_part(" ".join(sorted(setting)), len(configs) - place)
            measured = series.known(base, config)
            if not series.asked_to_stop():
                measured = yield from series.compared(base, config)
        tried.append(Tried(setting=setting, config=config, measured=measured))
    ran = [one.config for one in tried if not one.setting or (one.measured is not None and one.measured.usable)]
    checks = yield from series.checked(ran, parity=parity, proof=proof)
    return [dataclasses.replace(one, checks=checks.get(one.config, one.checks)) for one in tried]
