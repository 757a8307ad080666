"""The ladder as steps: which comparisons it asks for, what it keeps, and where it goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scripted import CPU, HERE, OUT_OF_MEMORY, Answers, played

from explorer.config import RunConfig
from explorer.experiments.compare import Limits
from explorer.experiments.kept import Kept, conditions, key_of, state_path
from explorer.experiments.ladder import Addition, check_ladder, ladder
from explorer.experiments.series import Series
from explorer.experiments.steps import FreshWorker
from explorer.messages import Compare, Problem, Verify, WorkerLost
from explorer.results.ladder import Rung

BASE = RunConfig(device="cpu", levels=(("dropout", "off"),))
SDPA, GELU, ALL = (
    Addition(name=f"{toggle}={level}", levels=((toggle, level),))
    for toggle, level in (("attention", "sdpa"), ("gelu", "torch"), ("checkpointing", "all"))
)
TIMES = {"attention": 0.5, "gelu": 0.8, "checkpointing": 1.25}


def step_ms(config: RunConfig) -> float:
    factor = 100.0
    for name, _ in config.levels:
        factor *= TIMES.get(name, 1.0)
    return factor


def series_of(
    path: Path | None, told: list[tuple[str, int]] | None = None, asked_to_stop: Callable[[], bool] = lambda: False
) -> Series:
    told = [] if told is None else told
    return Series(
        kept=Kept(path, conditions(BASE, HERE, block_s=2.0)),
        limits=Limits(budget_s=1e6),
        block_s=2.0,
        download=False,
        asked_to_stop=asked_to_stop,
        on_part=lambda name, left: told.append((name, left)),
        on_pair=lambda blocks: None,
    )


def climbed(answers: Answers, additions: Sequence[Addition], series: Series) -> Sequence[Rung]:
    return played(ladder(BASE, additions, series, parity=False, proof=True), answers)


def test_that_each_rung_is_compared_with_the_one_below_and_all_are_checked_at_the_end() -> None:
    answers, told = Answers(step_ms), []
    rungs = climbed(answers, [SDPA, GELU], series_of(None, told))
    one = BASE.with_level("attention", "sdpa")
    two = one.with_level("gelu", "torch")
    assert answers.compared == [(BASE, one), (one, two)]
    assert [rung.config for rung in rungs] == [BASE, one, two]
    ratios = [rung.measured.blocks.interval().ratio for rung in rungs[1:]]
    assert ratios == pytest.approx([2.0, 1.25])
    assert [rung.checks.proof_verdict for rung in rungs] == ["not proven"] * 3
    last = answers.sent[-1]
    assert isinstance(last, Verify)
    assert last.proof == (BASE, one, two)
    checks = [("proof of baseline", 3), ("proof of attention=sdpa", 2), ("proof of gelu=torch", 1)]
    assert told == [("attention=sdpa", 5), ("gelu=torch", 4), *checks]


def test_that_a_setting_whose_peak_was_measured_below_is_not_alone_again(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")
    answers = Answers(step_ms)
    climbed(answers, [SDPA], series_of(path))
    climbed(answers, [SDPA, GELU, ALL], dataclasses.replace(series_of(path), block_steps=3))
    commands = [order for order in answers.sent if isinstance(order, Compare)]
    assert [command.a_alone for command in commands] == [True, False, False]
    assert [command.block_steps for command in commands] == [10, 3, 3]
    unknown = Answers(step_ms, peak_bytes=lambda config: -1)
    climbed(unknown, [SDPA, GELU], series_of(None))
    assert all(order.a_alone for order in unknown.sent if isinstance(order, Compare))


def test_that_blocks_of_fewer_steps_do_not_stand_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Kept(path, conditions(BASE, HERE, block_s=2.0)).put("comparisons", "a", 1)
    with pytest.raises(ValueError, match="block_steps 10, and now it is 3"):
        Kept(path, conditions(BASE, HERE, block_s=2.0, block_steps=3))
    older = json.loads(path.read_text())
    del older["conditions"]["block_steps"]
    path.write_text(json.dumps(older))
    assert Kept(path, conditions(BASE, HERE, block_s=2.0)).get("comparisons", "a") == 1


def test_that_the_same_command_measures_only_what_is_left(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")
    first = climbed(Answers(step_ms), [SDPA], series_of(path))
    answers = Answers(step_ms)
    rungs = climbed(answers, [SDPA, GELU], series_of(path))
    one = BASE.with_level("attention", "sdpa")
    assert answers.compared == [(one, one.with_level("gelu", "torch"))]
    assert rungs[:2] == first
    (checks,) = (order for order in answers.sent if isinstance(order, Verify))
    assert checks.proof == (one.with_level("gelu", "torch"),)
    again = Answers(step_ms)
    assert climbed(again, [SDPA, GELU], series_of(path)) == rungs
    assert again.sent == []


def test_that_a_rung_that_fails_is_left_out_of_those_above_and_tried_again_next_time(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")

    def too_much(config: RunConfig) -> float | Problem:
        return OUT_OF_MEMORY if config.level("gelu") else step_ms(config)

    answers = Answers(too_much)
    rungs = climbed(answers, [SDPA, GELU, ALL], series_of(path))
    one = BASE.with_level("attention", "sdpa")
    assert [rung.measured.problem for rung in rungs[1:]] == [None, str(OUT_OF_MEMORY), None]
    assert answers.compared[-1] == (one, one.with_level("checkpointing", "all"))
    again = Answers(step_ms)
    climbed(again, [SDPA, GELU, ALL], series_of(path))
    two = one.with_level("gelu", "torch")
    assert again.compared == [(one, two), (two, two.with_level("checkpointing", "all"))]


def test_that_checks_can_be_made_apart_from_timing_and_both_add_up(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")
    apart = Answers(step_ms)
    rungs = climbed(apart, [SDPA, GELU], dataclasses.replace(series_of(path), timing=False))
    assert apart.compared == []
    (checks,) = apart.sent
    assert checks.proof == tuple(rung.config for rung in rungs)
    assert [rung.measured for rung in rungs] == [None] * 3
    timed = Answers(step_ms)
    rungs = climbed(timed, [SDPA, GELU], series_of(path))
    assert [type(order).__name__ for order in timed.sent] == ["Compare", "Stop"] * 2
    assert [rung.checks.proof_verdict for rung in rungs] == ["not proven"] * 3
    assert all(rung.measured.usable for rung in rungs[1:])


def test_that_whoever_draws_the_ladder_hears_of_each_rung_and_each_check() -> None:
    heard: list[tuple[int, int]] = []

    def on_rungs(rungs: Sequence[Rung]) -> None:
        heard.append((len(rungs), sum(rung.checks.proof_done for rung in rungs)))

    steps = ladder(BASE, [SDPA], series_of(None), parity=False, proof=True, on_rungs=on_rungs)
    played(steps, Answers(step_ms))
    assert heard == [(1, 0), (2, 0), (2, 0), (2, 1), (2, 2)]


def test_that_a_dead_worker_is_replaced_for_the_next_rung() -> None:
    def dies(config: RunConfig) -> float | WorkerLost:
        lost = config.level("gelu") and not config.level("checkpointing")
        return WorkerLost(exit_code=-9, last_words="killed") if lost else step_ms(config)

    answers = Answers(dies)
    rungs = climbed(answers, [GELU, SDPA], series_of(None))
    assert rungs[1].measured.problem == "The worker died: killed."
    assert rungs[2].measured.usable
    assert sum(isinstance(order, FreshWorker) for order in answers.sent) == 1


def test_that_a_stop_keeps_what_there_is_and_the_next_run_measures_that_rung_again(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")
    answers = Answers(step_ms, pairs=3)  # too few to end by the rule
    series = series_of(path, asked_to_stop=lambda: len(answers.sent) > 0)
    rungs = climbed(answers, [SDPA, GELU], series)
    assert len(rungs) == 2
    assert rungs[1].measured.ended_by == "stopped"
    assert rungs[1].measured.blocks.interval().n_pairs == 3
    assert not any(isinstance(order, Verify) for order in answers.sent)
    again = Answers(step_ms)
    climbed(again, [SDPA], series_of(path))
    assert again.compared == [(BASE, BASE.with_level("attention", "sdpa"))]


def test_that_a_rung_with_too_few_pairs_says_so_and_is_measured_again_with_more_time(tmp_path: Path) -> None:
    path = state_path(tmp_path / "out.csv")
    hurried = dataclasses.replace(series_of(path), limits=Limits(budget_s=1e-9))
    rungs = climbed(Answers(step_ms, pairs=1), [SDPA, GELU], hurried)
    told = "pairs of blocks that count in 1e-09 s: 1; a ratio needs 2: give a longer budget"
    assert [rung.measured.problem for rung in rungs[1:]] == [told] * 2
    again = Answers(step_ms)
    rungs = climbed(again, [SDPA, GELU], series_of(path))
    assert all(rung.measured.usable for rung in rungs[1:])
    assert len(again.compared) == 2


def test_that_a_rung_that_cannot_be_climbed_is_refused_before_the_first_one() -> None:
    flash = Addition(name="attention=flash", levels=(("attention", "flash"),))
    with pytest.raises(ValueError, match=r"rung attention=flash: attention=flash cannot run on CPU: .*CUDA"):
        check_ladder(BASE, [GELU, flash], CPU)
    with pytest.raises(ValueError, match="rung gelu=torch changes nothing"):
        check_ladder(BASE, [GELU, GELU], CPU)
    check_ladder(BASE, [GELU, SDPA], CPU)


def test_that_what_was_kept_before_there_was_another_setting_is_found(tmp_path: Path) -> None:
    path = tmp_path / "out.csv.state.json"
    Kept(path, {}).put("comparisons", key_of(BASE, BASE), 1)
    text = path.read_text()
    older = text.replace('\\"sample_every\\": 0, ', "")
    assert older != text
    path.write_text(older)
    assert Kept(path, {}).get("comparisons", key_of(BASE, BASE)) == 1
    Kept(path, {}).put("rows", "[1, 2]", 2)  # no configurations
    assert Kept(path, {}).get("rows", "[1, 2]") == 2


def test_that_results_of_other_conditions_or_of_no_such_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv.state.json"
    Kept(path, {"torch": "2.13.0"}).put("comparisons", key_of(BASE), 1)
    assert Kept(path, {"torch": "2.13.0"}).get("comparisons", key_of(BASE)) == 1
    assert Kept(path, {"torch": "2.13.0"}).get("comparisons", key_of(BASE, BASE)) is None
    with pytest.raises(ValueError, match=r"measured with torch 2\.13\.0, and now it is 2\.14\.0.*another --csv"):
        Kept(path, {"torch": "2.14.0"})
    path.write_text("ms,tokens")
    with pytest.raises(ValueError, match="cannot be read"):
        Kept(path, {"torch": "2.13.0"})
