"""Steps of a real session under the profiler: sums, a planted slow part, and a run that goes on as if nothing was."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine import profiling
from explorer.engine.device import environment
from explorer.engine.errors import Cancelled
from explorer.engine.isolation import open_worker
from explorer.engine.parts import part, parts_for_nsight
from explorer.engine.session import Session
from explorer.engine.step_profiling import fitted, profile_steps
from explorer.messages import ProfileSteps, RunEnded, Samples, Start, StepsProfiled, Stop, WorkerReady
from explorer.results.sample import Sample
from explorer.results.step_profile import StepProfile

STEPS = 2
PAUSE_S = 0.2


@pytest.fixture(scope="module")
def tiny(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-3)


@contextmanager
def begun(config: RunConfig) -> Iterator[Session]:
    device = environment().device("cpu")
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        session.begin_segment(0)
        yield session


@pytest.fixture(scope="module")
def profiled(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[StepProfile, list[dict[str, Any]]]:
    """A profile, and the events of the trace file that it left."""
    with begun(tiny) as session:
        profile = profile_steps(session, steps=STEPS, folder=tmp_path_factory.mktemp("trace"))
    events = json.loads(Path(profile.trace_file).read_text())["traceEvents"]
    return profile, [event for event in events if event.get("ph") == "X"]


def lengths_ms(events: list[dict[str, Any]], name: str) -> float:
    return sum(e["dur"] for e in events if e["name"] == f"explorer part {name}") / 1e3


def test_that_parts_add_up_to_what_the_trace_file_says_they_took(
    profiled: tuple[StepProfile, list[dict[str, Any]]],
) -> None:
    profile, events = profiled
    steps = [e for e in events if e["name"] == "explorer part step"]
    assert len(steps) == STEPS
    begin, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    assert profile.traced_ms == pytest.approx((end - begin) / 1e3, rel=1e-9)
    assert profile.busy_ms + profile.waiting_ms == pytest.approx(profile.traced_ms, rel=1e-9)
    assert [p.name for p in profile.parts] == ["data", "forward", "backward", "clip", "optimizer", "rest of the step"]
    # No part lies within another here, so each is as long as its marks together: to the trace's nanosecond.
    for found in profile.parts[:-1]:
        assert found.busy_ms + found.waiting_ms == pytest.approx(lengths_ms(events, found.name), rel=1e-4), found.name


def test_that_operators_add_up_to_the_time_that_any_of_them_covers(
    profiled: tuple[StepProfile, list[dict[str, Any]]],
) -> None:
    profile, events = profiled
    steps = [e for e in events if e["name"] == "explorer part step"]
    begin, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    covered = np.zeros(round((end - begin) * 1e3), bool)  # a place for each nanosecond
    for e in events:
        if e["cat"] == "cpu_op" and "::" in e["name"] and not e["name"].startswith("autograd::"):
            first = round((e["ts"] - begin) * 1e3)
            covered[max(first, 0) : max(first + round(e["dur"] * 1e3), 0)] = True
    assert profile.busy_ms == pytest.approx(covered.sum() / 1e6, rel=1e-3)
    assert sum(kernel.total_ms for kernel in profile.kernels) == pytest.approx(covered.sum() / 1e6, rel=1e-3)
    products = {kernel.name: kernel.count for kernel in profile.kernels}
    # In each of two layers four Conv1D forward; the head, tied to the embedding, is no addmm.
    assert products["aten::addmm"] == STEPS * 2 * 4


def heavier(step: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` with a large matrix product before it."""
    weight = torch.randn(640, 640)

    def heavy(*args: Any, **kwargs: Any) -> Any:
        torch.linalg.multi_dot([weight] * 3)
        return step(*args, **kwargs)

    return heavy


@pytest.mark.parametrize("slow", ["optimizer", "forward"])
def test_that_a_part_made_slow_is_the_largest(tiny: RunConfig, slow: str) -> None:
    with begun(tiny) as session:
        if slow == "optimizer":
            session.run.optimizer.step = heavier(session.run.optimizer.step)  # type: ignore[union-attr,method-assign]
        else:
            session.run.model.transformer.forward = heavier(session.run.model.transformer.forward)
        # A machine that does other work meanwhile can hold any part up, but not each time.
        for _ in range(3):
            profile = profile_steps(session, steps=STEPS)
            largest = max(profile.parts, key=lambda p: p.busy_ms).name, profile.kernels[0].name, profile.kernels[0].part
            if largest == (slow, "aten::mm", slow):
                break
    assert largest == (slow, "aten::mm", slow)


def test_that_steps_after_a_profile_are_those_of_a_run_without_one(tiny: RunConfig) -> None:
    def steps(session: Session, upto: int) -> list[Sample]:
        while session.loop.next_step < upto:
            session.loop.step()
        return session.loop.collect(all_of_them=True)

    def hooks(session: Session) -> int:
        return sum(
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
            for m in session.run.model.modules()
        )

    with begun(tiny) as session:
        before = hooks(session)
        profile_steps(session, steps=STEPS)
        taken = session.loop.next_step
        after = [sample.loss for sample in steps(session, taken + 5)]
        assert hooks(session) == before
    with begun(tiny) as session:
        plain = [sample.loss for sample in steps(session, taken + 5)]
    assert after == plain[taken:]
    assert after != plain[:5]
    mark = part("forward")
    with torch.profiler.profile() as recorded, mark:
        pass
    assert not [e for e in recorded.events() or [] if "explorer part" in e.name], "nobody looks any more"


def test_that_a_text_has_its_prefill_its_tokens_and_their_sampling(tiny: RunConfig) -> None:
    config = fitted(dataclasses.replace(tiny, workload="generate", batch=1, stop=("x",)), 4)
    with begun(config) as session:
        profile = profile_steps(session, steps=4)
    assert (profile.rounds, profile.passes) == (1, 5)
    by_name = {p.name: p for p in profile.parts}
    assert list(by_name) == ["prefill", "decode", "sampling", "rest of the step"]
    assert {k.name: k.count for k in profile.kernels}["aten::exponential_"] == 5
    assert by_name["decode"].runs > 3 * by_name["prefill"].runs  # four tokens to one
    assert profile.busy_ms + profile.waiting_ms == pytest.approx(profile.traced_ms, rel=1e-9)


def test_that_parts_are_nvtx_ranges_within_each_other_also_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", said.append)  # this build of torch has none
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: said.append("end"))
    with parts_for_nsight(), pytest.raises(ZeroDivisionError), part("step"), part("forward"):
        _ = 1 / 0
    with part("unseen"):
        pass
    assert said == ["step", "forward", "end", "end"]


@pytest.mark.gpu
def test_that_a_part_is_a_range_of_the_real_nvtx() -> None:
    with parts_for_nsight(), part("step"):
        inner = torch.cuda.nvtx.range_push("within")
        assert torch.cuda.nvtx.range_pop() == inner


@pytest.mark.gpu
@pytest.mark.parametrize("levels", [(), (("cuda_graph", "on"), ("dropout", "off"))], ids=["launched", "replayed"])
def test_that_on_a_gpu_parts_and_gaps_add_up_and_a_snapshot_is_left(
    tiny: RunConfig, levels: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    here = environment().device("cuda:0")
    config = dataclasses.replace(tiny, device="cuda:0", levels=levels)
    with Session(config, here, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        session.begin_segment(0)
        profile = profile_steps(session, steps=STEPS, folder=tmp_path, memory=True)
    assert profile.busy_ms + profile.waiting_ms == pytest.approx(profile.traced_ms, rel=1e-9)
    busiest = max(profile.parts, key=lambda p: p.busy_ms).name
    assert profile.replayed == bool(levels)
    assert busiest == "replay" if levels else busiest in ("forward", "backward", "optimizer")
    assert profile.kernels[0].total_ms > 0
    assert Path(profile.memory_file).stat().st_size > 1000


# ---- in the worker, beside a run


@pytest.fixture
def talk() -> Iterator[Talk]:
    talk = Talk(open_worker(in_process=True))
    talk.until(lambda e: isinstance(e, WorkerReady))
    yield talk
    talk.worker.close()


def stand_in(monkeypatch: pytest.MonkeyPatch, take: Callable[..., Any]) -> None:
    """Where a process would be started: what is asked of it is tested by the command line's tests."""
    monkeypatch.setattr(profiling, "steps_profile_of", take)


def test_that_a_run_pauses_for_a_profile_and_goes_on_with_the_same_losses(
    talk: Talk, tiny: RunConfig, profiled: tuple[StepProfile, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[RunConfig, dict[str, Any]]] = []

    def take(
        config: RunConfig, *, report: Callable[[str], None], cancelled: Callable[[], bool], **how: Any
    ) -> StepProfile:
        report("profiling")
        asked.append((config, how))
        until_s = time.perf_counter() + PAUSE_S
        while time.perf_counter() < until_s:
            pass
        return profiled[0]

    stand_in(monkeypatch, take)
    talk.worker.send(Start(run_id=1, config=tiny, steps=40))
    talk.until(lambda e: isinstance(e, Samples))
    talk.worker.send(ProfileSteps(run_id=-1, config=tiny, steps=4, folder="here"))
    answer = talk.until(lambda e: isinstance(e, StepsProfiled))
    talk.ended(1)
    talk.worker.send(Start(run_id=2, config=tiny, steps=40))
    talk.ended(2)
    assert isinstance(answer, StepsProfiled)
    assert (answer.run_id, answer.found) == (-1, profiled[0])
    assert asked == [(tiny, {"steps": 4, "folder": "here", "memory": False, "download": False})]
    assert [e.outcome for e in talk.events if isinstance(e, RunEnded) and e.run_id == -1] == ["completed"]
    with_it, without = (talk.samples(run) for run in (1, 2))
    assert [s.loss for s in with_it] == [s.loss for s in without]
    place = talk.events.index(answer)
    told = [s for e in talk.events[:place] if isinstance(e, Samples) for s in e.samples]
    assert 0 < len(told) < 40, "it came between two steps"
    before, after = with_it[len(told) - 1 : len(told) + 1]
    assert after.time_s - before.time_s - after.step_ms / 1e3 >= PAUSE_S, "the pause is part of no step"


def test_that_a_profile_beside_a_run_can_be_cancelled_alone(
    talk: Talk, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_it = threading.Event()

    def take(config: RunConfig, *, cancelled: Callable[[], bool], **how: Any) -> StepProfile:
        begun_it.set()
        while not cancelled():
            pass
        raise Cancelled

    stand_in(monkeypatch, take)
    talk.worker.send(Start(run_id=1, config=tiny))
    talk.worker.send(ProfileSteps(run_id=-1, config=tiny))
    assert begun_it.wait(30)
    talk.worker.send(Stop(run_id=-1))
    assert talk.ended(-1).outcome == "stopped"
    talk.until(lambda e: isinstance(e, Samples))  # the run goes on
    talk.worker.send(Stop(run_id=1))
    assert talk.ended(1).outcome == "stopped"


def test_that_a_profile_that_fails_is_told_and_the_run_goes_on(
    talk: Talk, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(config: RunConfig, **how: Any) -> StepProfile:
        raise OSError("no process can be started")

    stand_in(monkeypatch, take)
    talk.worker.send(Start(run_id=1, config=tiny))
    talk.worker.send(ProfileSteps(run_id=-1, config=tiny))
    ended = talk.ended(-1)
    assert ended.outcome == "failed"
    assert "no process can be started" in str(ended.problem)
    talk.until(lambda e: isinstance(e, Samples))
    talk.worker.send(Stop(run_id=1))
    assert talk.ended(1).outcome == "stopped"
