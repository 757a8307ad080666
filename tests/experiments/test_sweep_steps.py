"""Sweep and attribution as steps: what they measure, in which order, and what they leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import HERE, OUT_OF_MEMORY, Answers, played

from explorer.config import RunConfig
from explorer.experiments.alone import LEAST_STEPS
from explorer.experiments.attribution import attribute, settings
from explorer.experiments.compare import Limits
from explorer.experiments.kept import Kept, conditions, key_of, state_path
from explorer.experiments.ladder import Addition
from explorer.experiments.series import Series
from explorer.experiments.steps import FreshWorker
from explorer.experiments.sweep import sweep
from explorer.messages import Problem, Start, Stop, WorkerLost
from explorer.results.attribution_rows import Tried
from explorer.results.point import Point
from explorer.results.sweep import SeqPoints, outcome_of, sweep_rows

BASE = RunConfig(device="cpu")
ROOM = 93 * 1024
"""Tokens a step that the scripted device has room for."""


def step_ms(config: RunConfig) -> float | Problem:
    tokens = config.batch * config.seq
    return OUT_OF_MEMORY if tokens > ROOM else tokens / 1000


def series_of(
    path: Path | None, asked_to_stop: Callable[[], bool] = lambda: False, told: list[str] | None = None
) -> Series:
    return Series(
        kept=Kept(path, conditions(BASE, HERE, block_s=0.001)),
        limits=Limits(budget_s=1e6),
        block_s=0.001,
        download=False,
        asked_to_stop=asked_to_stop,
        on_part=lambda name, left: None if told is None else told.append(f"{name}: {left}"),
        on_pair=lambda blocks: None,
    )


def swept(answers: Answers, batches: list[int], seqs: list[int], series: Series) -> list[SeqPoints]:
    return list(played(sweep(BASE, batches, seqs, series), answers))


def peak_bytes(config: RunConfig) -> int:
    return 100 + config.batch * config.seq


def test_that_bisection_finds_the_largest_batch_and_larger_ones_are_left_out() -> None:
    answers = Answers(step_ms, peak_bytes)
    (line,) = swept(answers, [128, 1, 64, 256], [1024], series_of(None))
    assert [config.batch for config in answers.started[:3]] == [1, 64, 128]
    assert (line.largest, line.too_large, line.exact) == (93, 94, True)
    assert line.left_out == [256]
    assert 256 not in {config.batch for config in answers.started}
    assert len(answers.started) <= 3 + 6  # from 64 to 128: halved six times
    assert {batch for batch, point in line.points.items() if point.out_of_memory} >= {94, 128}
    assert line.points[64].step_ms == pytest.approx(64 * 1.024)
    assert line.points[64].n >= LEAST_STEPS
    assert line.points[93].step_ms is None  # a probe: some steps, no time
    assert line.points[93].peak_bytes == peak_bytes(dataclasses.replace(BASE, batch=93))
    probes = [order for order in answers.sent if isinstance(order, Start) and order.steps is not None]
    assert {probe.steps for probe in probes} == {3}


def test_that_where_every_batch_fits_nothing_is_probed_and_the_largest_is_not_said_to_be_exact() -> None:
    answers = Answers(step_ms)
    lines = swept(answers, [1, 2], [256, 512], series_of(None))
    assert [(c.seq, c.batch) for c in answers.started] == [(256, 1), (256, 2), (512, 1), (512, 2)]
    assert [(line.largest, line.too_large, line.exact) for line in lines] == [(2, None, False)] * 2


def test_that_where_not_even_one_sequence_fits_that_is_the_answer() -> None:
    (line,) = swept(Answers(lambda config: OUT_OF_MEMORY), [4, 8], [1024], series_of(None))
    assert (line.largest, line.too_large, line.exact) == (None, 1, True)


def test_that_a_sweep_goes_on_where_it_ended_and_keeps_what_did_not_fit(tmp_path: Path) -> None:
    path = state_path(tmp_path / "map.csv")
    first = swept(Answers(step_ms), [64, 128], [1024], series_of(path))
    answers = Answers(step_ms)
    again = swept(answers, [32, 64, 128], [1024], series_of(path))
    assert [config.batch for config in answers.started] == [32]
    assert again[0].largest == first[0].largest == 93


def test_that_a_point_that_the_budget_left_untimed_is_timed_the_next_time(tmp_path: Path) -> None:
    path = state_path(tmp_path / "map.csv")
    untimed = dataclasses.replace(BASE, batch=2, seq=1024)
    series_of(path).kept.put("alone", key_of(untimed), Point(peak_bytes=7).to_dict())
    answers = Answers(step_ms)
    (line,) = swept(answers, [2], [1024], series_of(path))
    assert answers.started == [untimed]
    assert line.points[2].step_ms == pytest.approx(2.048)


def test_that_a_stop_keeps_the_points_before_it(tmp_path: Path) -> None:
    path = state_path(tmp_path / "map.csv")
    answers = Answers(step_ms)

    def asked_to_stop() -> bool:
        return len(answers.started) == 2

    (line,) = swept(answers, [1, 2, 4], [1024], series_of(path, asked_to_stop))
    assert [(batch, outcome_of(point)) for batch, point in line.points.items()] == [(1, "measured"), (2, "stopped")]
    assert line.largest == 1
    again = Answers(step_ms)
    swept(again, [1, 2, 4], [1024], series_of(path))
    assert [config.batch for config in again.started] == [2, 4]


def test_that_a_worker_that_dies_is_a_failed_point_and_the_next_one_has_a_new_worker() -> None:
    def dies(config: RunConfig) -> float | Problem | WorkerLost:
        return WorkerLost(exit_code=-9, last_words="killed") if config.batch == 2 else step_ms(config)

    answers = Answers(dies)
    (line,) = swept(answers, [1, 2, 4], [64], series_of(None))
    assert [outcome_of(point) for point in line.points.values()] == ["measured", "failed", "measured"]
    assert sum(isinstance(order, FreshWorker) for order in answers.sent) == 1


def test_that_each_point_is_stopped_by_its_own_number_once_it_has_enough_steps() -> None:
    answers = Answers(step_ms)
    swept(answers, [1, 2], [64], series_of(None))
    starts = [order.run_id for order in answers.sent if isinstance(order, Start)]
    assert [order.run_id for order in answers.sent if isinstance(order, Stop)] == starts
    assert len(set(starts)) == 2


def test_that_rows_are_in_order_of_length_and_batch_with_the_largest_batch() -> None:
    points = {
        8: Point(step_ms=40.0, n=12, settled=True, peak_bytes=900, reserved_bytes=1000),
        2: Point(step_ms=10.0, n=10),
        9: Point(out_of_memory=True, problem="Out of memory: too much."),
    }
    rows = sweep_rows(BASE, [SeqPoints(seq=256, points=points)], toggles={"attention": "naive"})
    assert [row["batch"] for row in rows] == [2, 8, 9]
    assert [row["outcome"] for row in rows] == ["measured", "measured", "out of memory"]
    assert rows[1]["tokens_per_s"] == pytest.approx(8 * 256 / 0.04)
    assert [row["peak_allocated_bytes"] for row in rows] == [None, 900, None]
    assert {(row["largest_batch"], row["largest_batch_exact"]) for row in rows} == {(8, True)}
    assert {row["attention"] for row in rows} == {"naive"}
    assert Point.from_dict(points[9].to_dict()) == points[9]
    with pytest.raises(ValueError, match="cannot be read"):
        Point.from_dict({"speed": 1})


SDPA, GELU = (
    Addition(name=f"{toggle}={level}", levels=((toggle, level),))
    for toggle, level in (("attention", "sdpa"), ("gelu", "torch"))
)


def attributed(answers: Answers, series: Series) -> list[Tried]:
    configs = settings(BASE, [SDPA, GELU])
    return list(played(attribute(configs, series, parity=False, proof=True), answers))


def test_that_each_setting_is_compared_with_the_baseline_and_all_are_checked() -> None:
    answers = Answers(step_ms)
    tried = attributed(answers, series_of(None))
    sdpa, gelu = BASE.with_level("attention", "sdpa"), BASE.with_level("gelu", "torch")
    both = sdpa.with_level("gelu", "torch")
    assert answers.compared == [(BASE, sdpa), (BASE, gelu), (BASE, both)]
    assert [one.config for one in tried] == [BASE, sdpa, gelu, both]
    assert [one.checks.proof_verdict for one in tried] == ["not proven"] * 4
    assert tried[0].measured is None


def test_that_an_attribution_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = state_path(tmp_path / "effects.csv")
    answers = Answers(step_ms)
    tried = attributed(answers, series_of(path, asked_to_stop=lambda: len(answers.compared) == 2))
    assert [one.measured is not None for one in tried] == [False, True, True, False]
    again = Answers(step_ms)
    assert all(one.measured.usable for one in attributed(again, series_of(path))[1:])
    assert len(again.compared) <= 2  # the one that was stopped, unless it had ended by itself, and the last


@pytest.mark.parametrize(
    ("toggles", "words"),
    [
        ([SDPA], "give 2 to 5"),
        ([SDPA, Addition(name="attention=math", levels=(("attention", "math"),))], "named twice"),
        ([SDPA, Addition(name="gelu=hf", levels=(("gelu", "hf"),))], "gelu=hf changes nothing"),
    ],
)
def test_that_toggles_that_make_no_factorial_are_refused(toggles: list[Addition], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings(BASE, toggles)
