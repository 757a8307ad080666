"""Ladder, sweep and attribution as a person asks for them in words: what is to be done, and the rows it comes to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explorer.config import RunConfig
from explorer.experiments.arms import comparable
from explorer.experiments.attribution import attribute, settings
from explorer.experiments.floors import floor_key, measure_floor, read_floor, write_floor
from explorer.experiments.ladder import addition, check_ladder, ladder
from explorer.experiments.series import Series, must_run
from explorer.experiments.steps import Steps
from explorer.experiments.suggestions import without_toggles
from explorer.experiments.sweep import sweep, whole_numbers
from explorer.optimizations import registry
from explorer.results.attribution_rows import attribution_rows, effects_of, name_of
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.floor import Floor
from explorer.results.floor_words import floor_rows
from explorer.results.ladder import ladder_rows
from explorer.results.setting_row import Yardsticks
from explorer.results.sweep import sweep_rows

Rows = list[dict[str, Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One experiment."""

    base: RunConfig
    run: Callable[[Series, Callable[[Any], None]], Steps[Any]]
    """The experiment itself; the second argument hears what it has so far."""
    rows: Callable[[Any, Yardsticks], Rows]
    """What it has so far as rows."""
    toggles: tuple[str, ...] = ()
    """Of an attribution: what its effects are of."""


def ladder_plan(config: RunConfig, device: DeviceInfo, rungs: str, *, parity: bool, proof: bool) -> Plan:
    """Climb ``rungs`` (TOGGLE=LEVEL, separated by blanks) from ``config`` without toggles.

    Raises:
        ValueError: a rung is not allowed, changes nothing or cannot run on ``device``.
    """
    base = without_toggles(_training(config))
    additions = [addition(text) for text in rungs.split()]
    if not additions:
        raise ValueError("there is no rung; name toggles such as precision=bf16 attention=sdpa")
    check_ladder(base, additions, device)
    return Plan(
        base=base,
        run=lambda series, on_found: ladder(base, additions, series, parity=parity, proof=proof, on_rungs=on_found),
        rows=lambda found, yardsticks: ladder_rows(found, yardsticks, toggles=registry.baseline_levels()),
    )


def attribution_plan(config: RunConfig, device: DeviceInfo, toggles: str, *, parity: bool, proof: bool) -> Plan:
    """All settings of ``toggles`` (TOGGLE=LEVEL, separated by blanks or commas) against ``config`` without toggles.

    Raises:
        ValueError: a toggle is not allowed, changes nothing or cannot run on ``device``, or there are too many or few.
    """
    base = without_toggles(_training(config))
    additions = [addition(text) for text in re.split(r"[\s,]+", toggles) if text]
    configs = settings(base, additions)
    must_run({name_of(setting): config for setting, config in configs.items()}, device)
    names = tuple(one.name for one in additions)

    def rows(tried: Any, yardsticks: Yardsticks) -> Rows:
        return attribution_rows(tried, effects_of(tried, names), yardsticks, toggles=registry.baseline_levels())

    return Plan(
        base=base,
        run=lambda series, on_found: attribute(configs, series, parity=parity, proof=proof, on_tried=on_found),
        rows=rows,
        toggles=names,
    )


def floor_plan(config: RunConfig, here: Environment, *, repeats: int, delay: float, anew: bool) -> Plan:
    """Compare ``config`` with itself, and beside that with the second arm delayed by the share ``delay``, until there
    are ``repeats`` comparisons, those of earlier times included unless ``anew``; each is kept for all to come.

    Raises:
        ValueError: ``config`` cannot run here.
    """
    config = comparable(dataclasses.replace(_training(config), sample_every=0), keep_dropout=False)
    must_run({"the configuration": config}, here.device(config.device))

    def run(series: Series, on_found: Callable[[Floor], None]) -> Steps[Floor]:
        key = floor_key(config, here, block_s=series.block_s)
        latest = Floor() if anew else read_floor(key)

        def begin() -> None:
            done = latest.done(delay)
            on_found(latest)
            if done < repeats:
                series.on_part(f"comparison {done + 1} of {repeats}", repeats - done)

        def keep(floor: Floor) -> None:
            nonlocal latest
            latest = floor
            write_floor(key, floor)
            begin()

        begin()
        problem = yield from measure_floor(
            config,
            latest,
            delay=delay,
            repeats=repeats,
            block_s=series.block_s,
            limits=series.limits,
            download=series.download,
            asked_to_stop=series.asked_to_stop,
            ids=series.work_ids,
            on_pair=series.on_pair,
            on_comparison=keep,
        )
        if problem is not None:
            raise RuntimeError(str(problem))
        return latest

    return Plan(base=config, run=run, rows=lambda floor, _: floor_rows(floor, delay))


def sweep_plan(config: RunConfig, device: DeviceInfo, batches: str, seqs: str) -> Plan:
    """``config`` as it is, at ``batches`` and ``seqs`` (whole numbers behind commas).

    Raises:
        ValueError: a number is not allowed, or ``config`` cannot run on ``device``.
    """
    base = comparable(dataclasses.replace(_training(config), sample_every=0), keep_dropout=False)
    many, lengths = whole_numbers(batches), whole_numbers(seqs)
    for batch in many:
        for seq in lengths:
            dataclasses.replace(base, batch=batch, seq=seq)  # within the limits, or ValueError
    must_run({"the configuration": base}, device)
    return Plan(
        base=base,
        run=lambda series, on_found: sweep(base, many, lengths, series, on_lines=on_found),
        rows=lambda lines, _: sweep_rows(base, lines, toggles=registry.baseline_levels()),
    )


def _training(config: RunConfig) -> RunConfig:
    if config.workload != "train":
        raise ValueError(f"the workload is {config.workload}; choose training: only that is measured by turns")
    return config
