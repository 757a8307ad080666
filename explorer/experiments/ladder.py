"""The ladder: a baseline, then one setting added at a time, each measured by turns with the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from explorer.config import RunConfig
from explorer.experiments.series import Series, must_run
from explorer.experiments.steps import Steps
from explorer.optimizations import registry
from explorer.results.checks import Checks
from explorer.results.environment import DeviceInfo
from explorer.results.ladder import Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What one rung adds to the one below it."""

    name: str
    """As it was asked for, such as precision=bf16."""
    levels: tuple[tuple[str, str], ...]
    """Toggles and their levels; mostly one."""

    def to(self, config: RunConfig) -> RunConfig:
        """``config`` with this added.

        Raises:
            ValueError: no such toggle or level.
        """
        for toggle, level in self.levels:
            config = registry.with_level(config, toggle, level)
        return config


def addition(text: str) -> Addition:
    """What ``text`` (TOGGLE=LEVEL, more behind commas) asks for.

    Raises:
        ValueError: it is not written so, or there is no such toggle or level.
    """
    found = []
    for setting in text.split(","):
        toggle, equals, level = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting!r}: write TOGGLE=LEVEL, such as precision=bf16")
        registry.by_name(toggle).level(level)
        found.append((toggle, level))
    return Addition(name=text, levels=tuple(found))


def check_ladder(base: RunConfig, additions: Sequence[Addition], device: DeviceInfo) -> None:
    """See before a long run that every rung can be climbed on ``device``.

    Raises:
        ValueError: a rung changes nothing, or cannot run; the message names it and says why.
    """
    rungs = {"baseline": base}
    below = base
    for addition in additions:
        above = addition.to(below)
        if above == below:
            raise ValueError(f"rung {addition.name} changes nothing: what is below it is there already")
        rungs[f"rung {addition.name}"] = below = above
    must_run(rungs, device)


def ladder(
    base: RunConfig,
    additions: Sequence[Addition],
    series: Series,
    *,
    parity: bool,
    proof: bool,
    on_rungs: Callable[[Sequence[Rung]], None] = lambda rungs: None,
) -> Steps[Sequence[Rung]]:
    """Climb from ``base``; returns the baseline and a rung each, as far as it came. The worker must be ready.

    A setting that fails, as for want of memory, becomes a rung with its problem and is left out of those above it.
    ``on_rungs`` hears all rungs so far whenever there is more of them.
    """
    rungs = [Rung(name="baseline", config=base)]
    on_rungs(rungs)
    configs = [base]
    for addition in additions:
        configs.append(addition.to(configs[-1]))
    to_check = series.unchecked(configs, parity=parity, proof=proof)
    below = base
    peak_known: dict[RunConfig, bool] = {}
    for place, addition in enumerate(additions):
        above = addition.to(below)
        left = len(additions) - place + to_check
        # Whoever was the upper arm of the rung before was alone there.
        measured = yield from series.compared(
            below, above, name=addition.name, left=left, a_alone=not peak_known.get(below, False)
        )
        if measured is None and series.timing:
            break  # stopped
        if measured is not None:
            peak_known[above] = measured.peak_bytes[1] > 0
        rungs.append(Rung(name=addition.name, config=above, measured=measured))
        on_rungs(rungs)
        if measured is None or measured.usable:
            below = above

    def with_checks(checks: Mapping[RunConfig, Checks]) -> Sequence[Rung]:
        return [replace(rung, checks=checks.get(rung.config, rung.checks)) for rung in rungs]

    climbed = {rung.config: rung.name for rung in rungs if rung.measured is None or rung.measured.usable}
    checks = yield from series.checked(
        climbed, parity=parity, proof=proof, on_checks=lambda checks: on_rungs(with_checks(checks))
    )
    return with_checks(checks)
