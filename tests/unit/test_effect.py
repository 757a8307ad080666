"""What a toggle was seen to do, from the segments of a session; ratios worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from explorer.config import RunConfig
from explorer.results.effect import NOT_YET, effect
from explorer.results.log import RunLog
from explorer.results.sample import Sample, Segment

BASE = RunConfig(device="cuda:0")


def log_of(*parts: tuple[RunConfig, float, int]) -> RunLog:
    """One run whose segments took so many ms a step, and so many bytes at their peak; 1000 tokens a step."""
    log = RunLog()
    log.begin_run(1, BASE)
    for index, (config, step_ms, peak_bytes) in enumerate(parts):
        log.begin_segment(1, config, Segment(index=index, first_step=20 * index, changes=(), started_at=""))
        first = Sample(step=0, segment=index, phase="steady", time_s=0.0, tokens=1000, step_ms=step_ms)
        steps = [dataclasses.replace(first, step=20 * index + n, peak_allocated_bytes=peak_bytes) for n in range(20)]
        log.append(1, steps)
    return log


def test_that_the_newest_two_segments_that_differ_in_the_toggle_alone_are_held_together() -> None:
    sdpa = BASE.with_level("attention", "sdpa")
    both = sdpa.with_level("precision", "bf16")
    log = log_of((BASE, 100.0, 3 * 2**30), (sdpa, 50.0, 2 * 2**30), (both, 20.0, 2**30))
    seen = effect(log.runs, "attention", "naive")
    assert seen is not None
    assert (seen.before, seen.after, seen.old, seen.new) == ("1.1", "1.2", "naive", "sdpa")
    assert seen.speed == pytest.approx(2.0)
    assert seen.bytes_more == -(2**30)
    assert seen.told(str.format).startswith("run 1.2 (sdpa) against 1.1 (naive): 2.00 × tokens/s, -1.00 GiB in a step;")
    precision = effect(log.runs, "precision", "fp32")
    assert precision is not None
    assert precision.speed == pytest.approx(2.5)
    assert effect(log.runs, "gelu", "hf") is None
    assert NOT_YET.startswith("not measured")


def test_that_another_batch_or_unmeasured_memory_is_no_effect_of_the_toggle() -> None:
    larger = dataclasses.replace(BASE.with_level("attention", "sdpa"), batch=16)
    assert effect(log_of((BASE, 100.0, -1), (larger, 50.0, -1)).runs, "attention", "naive") is None
    seen = effect(
        log_of((BASE, 100.0, -1), (BASE.with_level("attention", "sdpa"), 80.0, -1)).runs, "attention", "naive"
    )
    assert seen is not None
    assert seen.told(str.format).startswith("run 1.2 (sdpa) against 1.1 (naive): 1.25 × tokens/s; one")
