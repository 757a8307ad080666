"""RunLog: runs, segments, samples, text, outcome; labels; and the way from events into it."""

import dataclasses

import numpy as np
import pytest

from explorer.config import RunConfig
from explorer.experiments.recording import record
from explorer.messages import (
    Problem,
    Progress,
    Refused,
    RunEnded,
    Samples,
    SegmentStarted,
    Text,
    WorkerLost,
    WorkerReady,
)
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.label import label
from explorer.results.log import RunLog, RunRecord
from explorer.results.ring import as_columns
from explorer.results.sample import Sample, Segment

TOGGLES = {"precision": "fp32", "attention": "naive", "gelu": "hf"}
CPU = DeviceInfo(id="cpu", kind="cpu", name="A processor", total_memory_bytes=2**34)
HERE = Environment(devices=(CPU,), platform="Linux", python="3.11.7", explorer="0.1.0", torch="2.13.0")
FP32 = RunConfig(device="cpu")
BF16 = FP32.with_level("precision", "bf16")


def segment(index: int, first_step: int, *changes: str) -> Segment:
    return Segment(index=index, first_step=first_step, changes=changes, started_at="2026-01-02T03:04:05+00:00")


def samples(first: int, count: int, index: int = 0, step_ms: float = 10.0) -> tuple[Sample, ...]:
    return tuple(
        Sample(step=i, segment=index, phase="steady", time_s=i / 100, tokens=100, step_ms=step_ms, loss=9.0 - i / 100)
        for i in range(first, first + count)
    )


def two_segments() -> RunLog:
    log = RunLog()
    log.begin_run(1, RunConfig())
    for event in (
        WorkerReady(environment=HERE),
        SegmentStarted(run_id=1, config=FP32, segment=segment(0, 0)),
        Samples(run_id=1, samples=samples(0, 30)),
        Progress(run_id=1, activity="compiling"),
        SegmentStarted(run_id=1, config=BF16, segment=segment(1, 30, "precision fp32 -> bf16")),
        Samples(run_id=1, samples=samples(30, 20, 1, 5.0)),
        Refused(run_id=1, config=BF16, problem=Problem(what="no", why="because")),
        Text(run_id=1, text="def "),
        Text(run_id=1, text="f():"),
    ):
        record(log, event)
    return log


def test_that_events_become_segments_with_their_own_configuration_samples_and_statistics():
    run = two_segments().run(1)
    assert [kept.config for kept in run.segments] == [FP32, BF16]
    assert run.columns.column("step").tolist() == list(range(50))
    assert (run.summary(0).n, run.summary(0).step_ms_median, run.summary(0).tokens_per_s_median) == (30, 10.0, 10_000.0)
    assert (run.summary(1).n, run.summary(1).step_ms_median, run.summary(1).loss_last) == (20, 5.0, 9.0 - 0.49)
    assert run.text == "def f():"
    assert (run.outcome, run.problem) == ("running", None)


def test_that_texts_of_several_prompts_are_told_apart_when_the_run_ends():
    log = RunLog()
    config = RunConfig(workload="generate", batch=3, prompt="a", more_prompts=("b ", "c", "beyond the batch"))
    run = log.begin_run(1, config)
    for row, text in ((0, "1"), (1, "2"), (0, "3")):
        record(log, Text(run_id=1, text=text, row=row))
    copy = run.as_of_now()
    record(log, Text(run_id=1, text="4", row=1))
    assert run.pieces == []
    assert run.texts == ("13", "24", "")
    assert copy.texts == ("13", "2", "")
    told = "--- prompt 1\na13\n\n--- prompt 2\nb 24\n\n--- prompt 3\nc"
    assert run.text == told
    record(log, RunEnded(run_id=1, outcome="stopped"))
    assert (run.pieces, run.text) == ([told], told)


def test_that_a_summary_is_kept_until_new_samples_come():
    log = two_segments()
    first = log.summary(1, 1)
    assert log.summary(1, 1) is first
    record(log, Samples(run_id=1, samples=samples(50, 1, 1, 500.0)))
    assert (log.summary(1, 1).n, log.summary(1, 1).step_ms_p99) == (21, pytest.approx(5 + 495 * 0.8))


def test_that_a_long_segments_summary_waits_for_one_percent_more_or_its_end():
    log = two_segments()
    columns = as_columns(samples(50, 1, 1))
    run = log.run(1)
    run.columns.extend({name: np.repeat(column, 59_980) for name, column in columns.items()})
    assert log.summary(1, 1).n == 60_000
    log.append(1, samples(70_000, 600, 1))
    assert log.summary(1, 1).n == 60_000
    log.append(1, samples(80_000, 10, 1))
    assert log.summary(1, 1).n == 60_610
    log.append(1, samples(90_000, 1, 1))
    log.end(1, "completed")
    assert log.summary(1, 1).n == 60_611


def test_that_a_run_keeps_its_whole_count_and_first_loss_when_old_samples_are_dropped():
    run = RunRecord(run_id=1, config=FP32, reference=FP32, capacity=80)
    log = RunLog()
    log._runs[1] = run
    for index in range(2):
        log.begin_segment(1, FP32, segment(index, 100 * index))
        for start in range(100 * index, 100 * index + 100, 10):
            log.append(1, samples(start, 10, index))
    assert run.columns.dropped > 100
    assert [run.summary(i).n for i in (0, 1)] == [100, 100]
    assert [run.summary(i).loss_first for i in (0, 1)] == [9.0, 8.0]
    assert np.isnan(run.summary(0).step_ms_median)


def test_that_a_run_ends_once_and_its_problem_is_told():
    log = two_segments()
    problem = Problem(what="Out of memory", why="20 GiB needed, 4 free", remedy="Halve the batch.")
    record(log, RunEnded(run_id=1, outcome="failed", problem=problem))
    record(log, WorkerLost(exit_code=-9, last_words=""))
    assert log.run(1).outcome == "failed"
    assert log.run(1).problem == "Out of memory: 20 GiB needed, 4 free. Halve the batch."


def test_that_losing_the_worker_fails_only_the_runs_that_were_going():
    log = two_segments()
    record(log, RunEnded(run_id=1, outcome="stopped"))
    log.begin_run(2, FP32)
    record(log, WorkerLost(exit_code=-11, last_words="Segmentation fault"))
    assert (log.run(1).outcome, log.run(1).problem) == ("stopped", None)
    assert log.run(2).outcome == "failed"
    assert log.run(2).problem == "The worker process ended by itself on SIGSEGV. Segmentation fault"


def test_that_a_run_begun_before_the_worker_was_ready_learns_where_it_ran():
    log = two_segments()
    elsewhere = dataclasses.replace(HERE, torch="2.14.0")
    record(log, WorkerReady(environment=elsewhere))
    log.begin_run(2, FP32)
    assert log.run(1).environment is HERE
    assert log.run(2).environment is elsewhere


def test_that_events_of_a_run_that_was_not_begun_are_refused():
    with pytest.raises(ValueError, match="run 7 was not begun; begun: 1"):
        record(two_segments(), Text(run_id=7, text=""))


def test_that_a_number_is_not_used_for_two_runs():
    with pytest.raises(ValueError, match="run 1 was begun before"):
        two_segments().begin_run(1, FP32)


def test_that_asking_for_a_segment_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no segment 2; it has 2"):
        two_segments().summary(1, 2)


def test_that_labels_compare_with_the_first_segment_as_it_ran():
    log = two_segments()
    log.begin_run(2, RunConfig(batch=16))
    log.begin_segment(2, dataclasses.replace(BF16, batch=16).with_level("gelu", "triton"), segment(0, 0))
    assert log.label(1, 0, TOGGLES) == "fp32 baseline"
    assert log.label(1, 1, TOGGLES) == "+ precision bf16"
    assert log.label(2, 0, TOGGLES) == "+ precision bf16 + gelu triton, batch 16"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"levels": (("attention", "sdpa"), ("precision", "bf16"))}, "+ precision bf16 + attention sdpa"),
        ({"levels": (("precision", "fp32"),)}, "fp32 baseline"),
        ({"lr": 3e-4, "seq": 64}, "fp32 baseline, seq 64, lr 0.0003"),
        ({"prompt": "other", "top_k": 3}, "fp32 baseline"),
        ({"workload": "generate", "seq": 64}, "fp32 baseline, generate"),
        ({"device": "cuda:1"}, "fp32 baseline, device cuda:1"),
        ({"text": "/home/someone/a_story_whose_name_is_very_long.txt"}, "fp32 baseline, text a_story_whose_name_is_v…"),
    ],
)
def test_that_a_label_says_what_differs_and_leaves_out_what_plays_no_part(changes, expected):
    assert label(dataclasses.replace(FP32, **changes), reference=FP32, toggles=TOGGLES) == expected


def test_that_a_prompt_is_quoted_where_it_has_spaces():
    reference = RunConfig(workload="generate")
    config = dataclasses.replace(reference, prompt="Once upon")
    assert label(config, reference=reference, toggles=TOGGLES) == "fp32 baseline, prompt 'Once upon'"
