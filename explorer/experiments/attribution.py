"""Attribution: all 2^k settings of some toggles, each measured by turns with the baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from explorer.config import RunConfig
from explorer.experiments.ladder import Addition
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps
from explorer.results.attribution import Setting, settings_of
from explorer.results.attribution_rows import Tried, name_of
from explorer.results.checks import Checks

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
    configs: Mapping[Setting, RunConfig],
    series: Series,
    *,
    parity: bool,
    proof: bool,
    on_tried: Callable[[Sequence[Tried]], None] = lambda tried: None,
) -> Steps[Sequence[Tried]]:
    """Compare each setting with the empty one, as far as it came. The worker must be ready.

    ``on_tried`` hears all settings, those that were not measured yet included, whenever more is known of them.
    """
    base = configs[frozenset()]
    tried = [Tried(setting=setting, config=config) for setting, config in configs.items()]
    on_tried(tried)
    to_check = series.unchecked(configs.values(), parity=parity, proof=proof)
    for place, one in enumerate(tried[1:], 1):
        measured = yield from series.compared(
            base, one.config, name=name_of(one.setting), left=len(tried) - place + to_check
        )
        tried[place] = dataclasses.replace(one, measured=measured)
        on_tried(tried)

    def with_checks(checks: Mapping[RunConfig, Checks]) -> Sequence[Tried]:
        return [dataclasses.replace(one, checks=checks.get(one.config, one.checks)) for one in tried]

    ran = {
        one.config: name_of(one.setting)
        for one in tried
        if not one.setting or (not series.timing if one.measured is None else one.measured.usable)
    }
    checks = yield from series.checked(
        ran, parity=parity, proof=proof, on_checks=lambda checks: on_tried(with_checks(checks))
    )
    return with_checks(checks)
