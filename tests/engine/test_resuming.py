"""A run whose worker is lost, or fails, in what its state was parked for: it goes on as if nothing had been asked."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import stuck_worker
import torch
from transformers import GPT2LMHeadModel
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine import isolation, parking, training
from explorer.engine.isolation import open_worker
from explorer.engine.problems import describe
from explorer.engine.resuming import ResumingWorker
from explorer.engine.training import make_optimizer, train_step
from explorer.experiments.single import run_to_end, wait_until_ready
from explorer.messages import (
    Command,
    Event,
    Note,
    Parked,
    Problem,
    ProfileSteps,
    Reconfigure,
    Refused,
    RunEnded,
    Samples,
    Save,
    Saved,
    SegmentStarted,
    Start,
    Stop,
    WorkerLost,
)
from explorer.optimizations import compiled, registry
from explorer.optimizations.base import Run
from explorer.results.sample import Sample, Segment


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> RunConfig:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-3)


def losses_by_step(talk: Talk, run_id: int) -> dict[int, float]:
    """Of steps that were done twice, the later."""
    return {sample.step: sample.loss for sample in talk.samples(run_id)}


def seen(kind: type, talk: Talk) -> list[Any]:
    return [event for event in talk.events if isinstance(event, kind)]


def test_that_a_run_whose_worker_is_ended_within_a_compilation_goes_on_as_if_untouched(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_serve", stuck_worker.serve)
    talk = Talk(open_worker())
    try:
        talk.worker.send(Start(run_id=1, config=tiny))
        found = []
        for end in ("killed", "given up"):
            talk.until(lambda e: isinstance(e, Samples) and e.samples[-1].step >= 5)
            talk.worker.send(Reconfigure(run_id=1, config=tiny.with_level("compile", "model")))
            talk.until(lambda e: isinstance(e, SegmentStarted) and e.config.level("compile") == "model")
            found.append(seen(Parked, talk)[-1])
            before = talk.worker.process_id
            if end == "killed":
                os.kill(before, signal.SIGKILL)
                talk.until(lambda e: isinstance(e, Refused))
            else:
                talk.events += talk.worker.interrupt()
            assert talk.worker.process_id != before
        first, second = found
        talk.until(lambda e: isinstance(e, Samples) and e.samples[-1].step >= second.step + 10)
        talk.worker.send(Stop(run_id=1))
        assert talk.ended(1).outcome == "stopped"
        resumed = losses_by_step(talk, 1)
        talk.worker.send(Start(run_id=2, config=tiny, steps=second.step + 10))
        assert talk.ended(2).problem is None
    finally:
        talk.worker.close()
    assert all(event.resumed and event.config.level("compile") is None for event in seen(Refused, talk))
    words = [str(event.problem) for event in seen(Refused, talk)]
    for told, how, parked in zip(
        words,
        ("The worker ended by itself on SIGKILL", "The worker was ended: it was ended by hand"),
        found,
        strict=True,
    ):
        assert told.startswith(f"At the change compile off -> model: {how}")
        assert f"The run went on from step {parked.step}, as it was before." in told
        assert told.endswith("The change is not to blame: ask for it again.") is (parked is first), (
            "killed from outside"
        )
    assert words == [note.text for note in seen(Note, talk)]
    segments = [event.segment for event in talk.segments(1)]
    assert [segment.index for segment in segments] == [0, 1, 2, 3, 4]
    assert (segments[2].first_step, segments[4].first_step) == (first.step, second.step)
    assert segments[4].changes == ("resumed",)
    # Dropout included: weights, averages, batches and random numbers are those of an untouched run, to the bit.
    untouched = losses_by_step(talk, 2)
    assert {step: resumed[step] for step in untouched} == untouched
    assert not Path(second.path).exists()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fails(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(registry.by_name("compile"), "unavailable", lambda level, device: None)
    monkeypatch.setattr(compiled, "BACKEND", fails)
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("failing")
def test_that_a_headless_run_goes_on_from_before_a_compilation_that_fails_and_to_its_end(tiny: RunConfig) -> None:
    worker = open_worker(in_process=True)
    events: list[Event] = []
    try:
        wait_until_ready(worker, events.append)
        then = [tiny.with_level("compile", "model"), tiny.with_level("attention", "sdpa")]
        ended = run_to_end(worker, Start(run_id=1, config=tiny, steps=4), events.append, then=then)
    finally:
        worker.close()
    assert (ended.outcome, ended.problem) == ("completed", None)
    (told,) = [event.text for event in events if isinstance(event, Note)]
    assert told.startswith("At the change compile off -> model: ")
    assert "no such instruction" in told
    samples = [s for e in events if isinstance(e, Samples) for s in e.samples]
    by_segment = {s: [x for x in samples if x.segment == s] for s in range(4)}
    assert [len(by_segment[s]) >= 4 for s in range(4)] == [True, False, True, True]
    assert by_segment[2][0].step == by_segment[0][-1].step + 1
    assert not [e for e in events if isinstance(e, RunEnded) and e.problem is not None]


class FullGraph:
    """Stands where a recording on a GPU stands: the fourth step is recorded, and asks for more than there is."""

    hidden_bytes = 0

    def __init__(self, run: Run, step: Callable[..., Any]) -> None:
        self._run, self._step, self._before = run, step, 0

    def __call__(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self._before += 1
        if self._before > 3:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
                "3.19 GiB is free. Including non-PyTorch memory, this process has 136.60 GiB memory in use."
            )
        return self._step(self._run, tokens)  # type: ignore[no-any-return]


@contextmanager
def graphed(run: Run, level: str) -> Iterator[None]:
    run.graphed = True
    yield
    run.graphed = False


def test_that_memory_that_runs_out_in_a_recording_is_told_and_the_run_goes_on(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    toggle = registry.by_name("cuda_graph")
    monkeypatch.setattr(toggle, "unavailable", lambda level, device: None)
    monkeypatch.setattr(toggle, "applied", graphed)
    monkeypatch.setattr(training, "TrainingGraph", FullGraph)
    worker = open_worker(in_process=True)
    events: list[Event] = []
    try:
        wait_until_ready(worker, events.append)
        then = [tiny.with_level("cuda_graph", "on")]
        ended = run_to_end(worker, Start(run_id=1, config=tiny, steps=4), events.append, then=then)
    finally:
        worker.close()
    assert (ended.outcome, ended.problem) == ("completed", None)
    (refused,) = [event for event in events if isinstance(event, Refused)]
    assert refused.resumed
    assert str(refused.problem).startswith("At the change cuda_graph off -> on: Out of memory: batch 2 x 16 tokens")
    assert "12.27 GiB were asked for at once, 3.19 were free" in refused.problem.why
    samples = [s for e in events if isinstance(e, Samples) for s in e.samples]
    steps_of = {s: [x.step for x in samples if x.segment == s] for s in range(3)}
    assert len(steps_of[1]) == 3, "those before the recording"
    assert steps_of[2][0] == steps_of[1][0]


def steps(run_id: int, first: int, count: int) -> Samples:
    made = (
        Sample(step=step, segment=0, phase="steady", time_s=step * 0.05, tokens=100, step_ms=50.0, loss=9.0)
        for step in range(first, first + count)
    )
    return Samples(run_id=run_id, samples=tuple(made))


class Scripted:
    """Stands where the worker's process stands."""

    process_id = 1
    alive = True

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.events: list[Event] = []

    def send(self, command: Command) -> None:
        self.commands.append(command)

    def drain(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def close(self, timeout_s: float = 1.0) -> None:
        self.alive = False

    def kill(self) -> None:
        self.alive = False


class Stage:
    """A worker whose processes are scripted; a training run, number 1, has parked its state."""

    def __init__(self, *between: Command) -> None:
        """``between``: what is asked for between the run's start and its parking."""
        self.processes: list[Scripted] = []
        self.worker = ResumingWorker(self._make)
        for command in (Start(run_id=1, config=RunConfig()), *between):
            self.worker.send(command)
        self.says(Parked(run_id=1, path="run", config=RunConfig(), changes=("compile",), step=9, segments=2))

    def _make(self) -> Scripted:
        self.processes.append(Scripted())
        return self.processes[-1]

    def says(self, *events: Event) -> list[Event]:
        """What is told of these events of the process of the moment."""
        self.processes[-1].events += events
        return self.worker.drain()


LOST = WorkerLost(exit_code=-11, last_words="Segmentation fault")
FAILED = RunEnded(run_id=1, outcome="failed", problem=Problem(what="The run failed", why="no such instruction"))


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(*between: Command) -> Stage:
        made.append(Stage(*between))
        return made[-1]

    yield make
    for one in made:
        one.worker.close()


@pytest.mark.parametrize(
    ("end", "blamed"),
    [
        (LOST, True),
        (FAILED, True),
        (WorkerLost(exit_code=-signal.SIGABRT, last_words="free(): invalid pointer"), True),
        (WorkerLost(exit_code=1, last_words="KeyError"), True),
        (WorkerLost(exit_code=-signal.SIGKILL, last_words="", for_want_of_memory=True), False),
        (WorkerLost(exit_code=-signal.SIGTERM, last_words=""), False),
        (
            RunEnded(run_id=1, outcome="failed", problem=describe(OSError(errno.ENOSPC, "No space left"), RunConfig())),
            False,
        ),
    ],
)
def test_that_a_change_is_blamed_only_where_it_may_have_done_it(
    stage: Callable[..., Stage], end: Event, blamed: bool
) -> None:
    one = stage()
    note, refused = one.says(end)
    assert isinstance(refused, Refused)
    assert refused.problem.remedy.endswith("ask for it again.") is not blamed
    assert str(refused.problem) == note.text
    resumed = one.processes[-1].commands[-1]
    assert isinstance(resumed, Start)
    assert resumed.parked is not None


def test_that_what_the_system_lacks_is_seen_behind_the_error_that_came_of_it() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp/torchinductor/kernel.so")
        except OSError as error:
            raise RuntimeError("backend='inductor' raised:") from error
    except RuntimeError as error:
        problem = describe(error, RunConfig())
    assert problem.outside
    assert problem.why == "No space left on device: /tmp/torchinductor/kernel.so"
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "ptxas")
    assert not describe(missing, RunConfig()).outside, "a program that a setting needs and that is not there"


@pytest.mark.parametrize("last", [13, 14])
def test_that_a_failure_after_the_last_step_is_not_the_changes(stage: Callable[..., Stage], last: int) -> None:
    """Such as that of writing the model at the end."""
    one = stage()
    one.worker._start = dataclasses.replace(one.worker._start, steps=14)  # type: ignore[type-var]
    one.says(steps(1, 10, last - 10))
    told = one.says(FAILED)
    assert (told == [FAILED]) is (last == 14)


def test_that_a_segment_after_the_change_leaves_its_number_to_no_other(stage: Callable[..., Stage]) -> None:
    one = stage()
    for index in (1, 2):
        segment = Segment(index=index, first_step=9 + index, changes=(), started_at="2026")
        one.says(SegmentStarted(run_id=1, config=RunConfig(), segment=segment))
    one.says(FAILED)
    resumed = one.processes[-1].commands[-1]
    assert isinstance(resumed, Start)
    assert resumed.parked is not None
    assert resumed.parked.segments == 3


@pytest.mark.parametrize("end", [LOST, FAILED])
def test_that_a_run_that_was_asked_to_stop_is_not_gone_on_with(stage: Callable[..., Stage], end: Event) -> None:
    early, late = stage(), stage(Stop(run_id=1))
    early.worker.send(Stop(run_id=1))
    for one in (early, late):
        assert one.says(end) == [end]
        (process,) = one.processes
        assert [type(command) for command in process.commands] == [Start, Stop]


def test_that_the_end_of_a_profile_leaves_what_was_parked(stage: Callable[..., Stage]) -> None:
    one = stage()
    profile = ProfileSteps(run_id=-1, config=RunConfig(), steps=3, folder="")
    one.worker.send(profile)
    ended = RunEnded(run_id=-1, outcome="completed")
    assert one.says(ended) == [ended]
    told = one.says(LOST)
    assert [type(event) for event in told] == [Note, Refused]
    assert [type(command) for command in one.processes[1].commands] == [Start], "the profile was answered"


def test_that_what_was_not_answered_is_asked_of_the_process_that_goes_on(stage: Callable[..., Stage]) -> None:
    one = stage()
    profile = ProfileSteps(run_id=-2, config=RunConfig(), steps=3, folder="")
    asked = [Save(run_id=1, folder="kept"), profile, Stop(run_id=-2), Save(run_id=1, folder="lost")]
    for command in asked:
        one.worker.send(command)
    one.says(Saved(run_id=1, folder="kept"))
    one.worker.interrupt()
    resumed, *rest = one.processes[1].commands
    assert isinstance(resumed, Start)
    assert rest == asked[1:]


def test_that_a_state_is_kept_on_the_disk_while_the_run_may_go_on_from_it_and_no_longer(
    stage: Callable[..., Stage], tmp_path: Path
) -> None:
    one = stage()
    files = [tmp_path / name for name in ("first", "second")]

    def parks(file: Path, step: int) -> None:
        file.touch()
        one.says(Parked(run_id=1, path=str(file), config=RunConfig(), changes=(), step=step, segments=2))

    parks(files[0], step=10)
    one.says(steps(1, 10, 5))
    assert files[0].exists()
    parks(files[1], step=15)
    assert [file.exists() for file in files] == [False, True]
    one.says(steps(1, 15, 6))
    assert not files[1].exists()
    for ends in (lambda: one.says(RunEnded(run_id=1, outcome="completed")), lambda: one.worker.send(Stop(run_id=1))):
        one.worker.send(Start(run_id=1, config=RunConfig()))
        parks(files[0], step=10)
        ends()
        assert not files[0].exists()
    one.worker.send(Start(run_id=1, config=RunConfig()))
    parks(files[0], step=10)
    one.says(LOST)
    assert files[0].exists(), "the next process reads it"


def test_that_a_worker_that_was_ended_starts_no_other(stage: Callable[..., Stage]) -> None:
    one = stage()
    one.processes[0].events.append(
        RunEnded(run_id=1, outcome="failed", problem=Problem(what="The run failed", why="lost", spent=True))
    )
    one.worker.kill()
    one.worker.drain()
    assert len(one.processes) == 1


def run_of(model: Path, config: RunConfig) -> Run:
    run = Run(config=config, device=torch.device("cpu"), model=GPT2LMHeadModel.from_pretrained(model))
    run.optimizer = make_optimizer(run)
    return run


def test_that_what_is_parked_comes_back_to_the_bit(tiny_model: Path, tmp_path: Path) -> None:
    config = RunConfig(lr=1e-3)
    run, other = run_of(tiny_model, config), run_of(tiny_model, config)
    batch = torch.randint(0, 8192, (2, 16), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        train_step(run, batch)
    run.kept["precision"] = (1024.0, {"scale": 512.0, "_growth_tracker": 7})
    parking.park(run, tmp_path / "run", step=3, batch=5)
    after = [train_step(run, batch)[0].item() for _ in range(2)]
    assert parking.unpark(other, tmp_path / "run") == (3, 5)
    assert [train_step(other, batch)[0].item() for _ in range(2)] == after
    kept_for, state = other.kept["precision"]
    assert (kept_for, state) == run.kept["precision"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_that_a_disk_that_takes_no_state_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="run cannot be written: "):
        parking.park(run_of(tiny_model, RunConfig()), tmp_path / "not there" / "run", step=0, batch=0)
