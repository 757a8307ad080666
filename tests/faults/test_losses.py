"""Losses that are no numbers, and fp16 that changes nothing: real ones, and the words for them."""

from __future__ import annotations

import dataclasses
import math
import threading
from queue import SimpleQueue

import pytest
from failing import end_of, served

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.live_comparison import LiveComparison
from explorer.messages import Compare, Event, Note, RunEnded, Samples
from explorer.results.loss_watch import LossWatch
from explorer.results.sample import Sample


def notes(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


def test_that_a_rate_at_which_weights_explode_is_told_once_with_its_step(tiny: RunConfig) -> None:
    # Weight decay makes each weight -9 times what it was: beyond float32 after some forty steps.
    config = dataclasses.replace(tiny, lr=1.0, weight_decay=10.0, grad_clip=0.0)
    events = served(config, steps=60)
    (said,) = notes(events)
    samples = [sample for event in events if isinstance(event, Samples) for sample in event.samples]
    first = next(sample.step for sample in samples if not math.isfinite(sample.loss))
    assert first > 0
    assert said.startswith(f"step {first}: the loss is nan")
    assert "at a learning rate of 1 and no clipping of gradients" in said
    assert end_of(events).outcome == "completed"  # speed is still measured


@pytest.mark.parametrize("arm", [0, 1])
def test_that_a_comparison_ends_with_the_arm_and_the_step_at_which_its_loss_is_no_number(
    tiny: RunConfig, arm: int
) -> None:
    wild = dataclasses.replace(tiny, lr=1.0, weight_decay=10.0, grad_clip=0.0)
    events: list[Event] = []
    command = Compare(run_ids=(1, 2), arms=(wild, tiny) if arm == 0 else (tiny, wild), block_s=0.01, block_steps=5)
    LiveComparison(command, threading.Event(), SimpleQueue(), events.append, environment()).serve()
    samples = [s for e in events if isinstance(e, Samples) and e.run_id == arm + 1 for s in e.samples]
    first = next(sample.step for sample in samples if not math.isfinite(sample.loss))
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert [end.run_id for end in ends] == [1, 2]
    for end in ends:
        assert end.problem is not None
        assert (end.outcome, end.problem.bad_request, end.problem.spent) == ("failed", False, False)
        assert f"arm {'AB'[arm]} computes no numbers any more" in end.problem.what
        assert end.problem.why.startswith(f"step {first}: the loss is nan")
        assert "at a learning rate of 1 and no clipping" in end.problem.why


def test_that_a_first_loss_scale_too_large_is_told_once_it_has_halved(tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, init_scale=2.0**32).with_level("precision", "fp16")
    events = served(config, steps=40)
    samples = [sample for event in events if isinstance(event, Samples) for sample in event.samples]
    skipped = [sample.step for sample in samples if sample.skipped]
    assert skipped == list(range(len(skipped)))
    (said,) = notes(events)
    assert said.startswith(f"steps 0 to {skipped[-1]} changed no weight: fp16's gradients overflowed until the loss ")
    assert said.endswith("(init_scale is 4.295e+09)")


def sample(step: int, **fields: object) -> Sample:
    made = {"loss": 2.0, "grad_norm": 1.0} | fields
    return Sample(step=step, segment=0, phase="steady", time_s=0.0, tokens=1, step_ms=1.0, **made)  # type: ignore[arg-type]


def test_that_a_collapsed_scale_is_told_once() -> None:
    watch = LossWatch()
    steps = [sample(i, skipped=True, loss_scale=2.0 ** (3 - i), grad_norm=math.inf) for i in range(10)]
    (said,) = watch.look(steps, RunConfig())
    assert said.startswith("step 4: fp16's loss scale fell to 0.5 in 5 steps")


def test_that_a_skip_now_and_then_is_not_told() -> None:
    watch = LossWatch()
    steps = [sample(i, skipped=i % 5 == 0, loss_scale=1024.0) for i in range(50)]
    assert watch.look(steps, RunConfig()) == []


def test_that_a_new_segment_may_be_told_of_anew() -> None:
    watch = LossWatch()
    assert len(watch.look([sample(0), sample(1, loss=math.nan), sample(2, loss=math.nan)], RunConfig())) == 1
    assert len(watch.look([dataclasses.replace(sample(3, loss=math.inf), segment=1)], RunConfig())) == 1
