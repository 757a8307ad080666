"""A ladder's rows, by hand from its blocks."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from explorer.config import RunConfig
from explorer.results.blocks import Block, Blocks
from explorer.results.checks import Checks
from explorer.results.ladder import Rung, ladder_rows
from explorer.results.measured import Measured
from explorer.results.setting_row import Yardsticks

BASE = RunConfig(batch=4, seq=256)
BF16 = BASE.with_level("precision", "bf16")
SDPA = BF16.with_level("attention", "sdpa")
TOGGLES = {"precision": "fp32", "attention": "naive"}


def measured(a_ms: float, b_ms: float, *, peaks: tuple[int, int] = (-1, -1), pairs: int = 8) -> Measured:
    blocks = Blocks()
    for pair in range(pairs):
        blocks.add(0, pair, Block(step_ms=a_ms + pair / 1e3, sm_clock_mhz=1980.0))
        blocks.add(1, pair, Block(step_ms=b_ms + pair / 1e3, sm_clock_mhz=1980.0))
    return Measured(blocks=blocks, ended_by="settled", peak_bytes=peaks)


def floors(arms: tuple[RunConfig, ...]) -> tuple[float, bool]:
    return (0.001, True) if BASE in arms else (0.005, False)


YARDSTICKS = Yardsticks(floors=floors, device_name="NVIDIA H200", ceiling_tflop_per_s=800.0)
RUNGS = [
    Rung(name="baseline", config=BASE, checks=Checks(is_reference=True)),
    Rung(name="precision=bf16", config=BF16, measured=measured(200.0, 100.0, peaks=(4000, 3000))),
    Rung(name="attention=sdpa", config=SDPA, measured=measured(110.0, 55.0, peaks=(3000, 1000))),
]


def test_that_each_rung_stands_against_the_one_below_and_against_the_baseline() -> None:
    rows = ladder_rows(RUNGS, YARDSTICKS, toggles=TOGGLES)
    assert [row["setting"] for row in rows] == ["baseline", "precision=bf16", "attention=sdpa"]
    assert [row["rung"] for row in rows] == [0, 1, 2]
    assert [row["precision"] for row in rows] == ["fp32", "bf16", "bf16"]
    assert [row["attention"] for row in rows] == ["naive", "naive", "sdpa"]
    assert rows[0]["step_ms_median"] == pytest.approx(200.0, rel=1e-4)
    assert rows[0]["tokens_per_s"] == pytest.approx(4 * 256 / 0.2, rel=1e-4)
    assert rows[0]["speedup"] is None
    assert rows[0]["parity"] == "reference"
    assert rows[1]["speedup"] == rows[1]["speedup_vs_baseline"] == pytest.approx(2.0, rel=1e-4)
    assert rows[2]["speedup"] == pytest.approx(2.0, rel=1e-4)
    # The middle rung was slower when it was measured anew: the ratios multiply, not the times divide.
    assert rows[2]["speedup_vs_baseline"] == pytest.approx(4.0, rel=1e-4)
    assert rows[2]["ci_low_vs_baseline"] <= rows[2]["speedup_vs_baseline"] <= rows[2]["ci_high_vs_baseline"]
    assert rows[2]["verdict"] == rows[2]["verdict_vs_baseline"] == "faster"
    assert [row["floor"] for row in rows] == [None, 0.001, 0.005]
    assert [row["peak_allocated_bytes"] for row in rows] == [4000, 3000, 1000]
    assert [row["memory_ratio"] for row in rows] == [1.0, 0.75, 0.25]
    assert {tuple(row) for row in rows} == {tuple(rows[0])}  # the same columns in each


def test_that_a_rung_that_failed_has_its_problem_and_those_above_go_on_without_it() -> None:
    failed = Measured(blocks=Blocks(), ended_by="stopped", peak_bytes=(-1, -1), problem="Out of memory: too much.")
    above = BASE.with_level("attention", "sdpa")
    rungs = [
        RUNGS[0],
        Rung(name="precision=bf16", config=BF16, measured=failed),
        Rung(name="attention=sdpa", config=above, measured=measured(200.0, 160.0)),
    ]
    rows = ladder_rows(rungs, YARDSTICKS, toggles=TOGGLES)
    assert rows[1]["problem"] == "Out of memory: too much."
    assert rows[1]["step_ms_median"] is None
    assert rows[2]["speedup"] == rows[2]["speedup_vs_baseline"] == pytest.approx(1.25, rel=1e-3)
    assert rows[0]["step_ms_median"] == pytest.approx(200.0, rel=1e-4)
    assert rows[0]["peak_allocated_bytes"] is None


def test_that_each_rung_says_its_share_of_the_ceiling_and_its_energy() -> None:
    joules = dataclasses.replace(RUNGS[1].measured, joules_per_token=(0.008, 0.004))
    rungs = [RUNGS[0], dataclasses.replace(RUNGS[1], measured=joules), RUNGS[2]]
    rows = ladder_rows(rungs, YARDSTICKS, toggles=TOGGLES)
    # GPT-2's 124,439,808 parameters without the 1024 x 768 of its positions; 12 L d T with L = 12, d = 768, T = 256.
    flop = 6 * (124_439_808 - 1024 * 768) + 12 * 12 * 768 * 256
    tokens_per_s = 4 * 256 / 0.1000035
    assert rows[1]["tflop_per_s"] == pytest.approx(flop * tokens_per_s / 1e12, rel=1e-6)
    assert rows[1]["mfu_measured"] == pytest.approx(flop * tokens_per_s / 800e12, rel=1e-6)
    assert rows[1]["mfu_published"] == pytest.approx(flop * tokens_per_s / 989.5e12, rel=1e-3)
    assert [row["joules_per_token"] for row in rows] == [0.008, 0.004, None]
    unknown = ladder_rows(rungs, Yardsticks(floors=floors, device_name="GPU of nobody"), toggles=TOGGLES)
    assert unknown[1]["tflop_per_s"] == rows[1]["tflop_per_s"]
    assert (unknown[1]["mfu_measured"], unknown[1]["mfu_published"]) == (None, None)


def test_that_above_a_rung_that_was_not_timed_nothing_is_said_against_the_baseline() -> None:
    rungs = [RUNGS[0], dataclasses.replace(RUNGS[1], measured=None), RUNGS[2]]
    rows = ladder_rows(rungs, YARDSTICKS, toggles=TOGGLES)
    assert [row["step_ms_median"] for row in rows[:2]] == [None, None]
    assert rows[2]["speedup"] == pytest.approx(2.0, rel=1e-4)
    assert rows[2]["speedup_vs_baseline"] is None
    assert rows[2]["memory_ratio"] is None
    assert rows[1]["parity"] == "not checked"


def test_that_a_baseline_alone_and_nothing_at_all_are_rows_too() -> None:
    (row,) = ladder_rows(RUNGS[:1], YARDSTICKS, toggles=TOGGLES)
    assert row["step_ms_median"] is None
    assert ladder_rows([], YARDSTICKS, toggles=TOGGLES) == []


def test_that_a_measurement_survives_json() -> None:
    one = dataclasses.replace(measured(2.0, 1.0, peaks=(5, 6)), joules_per_token=(0.5, math.nan))
    back = Measured.from_dict(json.loads(json.dumps(one.to_dict())))
    assert (back.blocks, back.peak_bytes, back.joules_per_token[0]) == (one.blocks, (5, 6), 0.5)
    assert math.isnan(back.joules_per_token[1])
    assert back.done
    older = {name: value for name, value in one.to_dict().items() if name != "joules_per_token"}
    assert Measured.from_dict(older).blocks == one.blocks
    assert not Measured.from_dict({**one.to_dict(), "ended_by": "stopped"}).done
    assert not Measured.from_dict({**one.to_dict(), "problem": "no"}).usable
    for wrong in ({}, {**one.to_dict(), "ended_by": "bored"}, {**one.to_dict(), "blocks": [[{}], []]}):
        with pytest.raises(ValueError, match=r"cannot be read|bored"):
            Measured.from_dict(wrong)
