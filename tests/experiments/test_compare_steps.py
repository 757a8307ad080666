"""Comparisons and checks as steps, against scripted answers: what is sent, when, and what it comes to."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from explorer.config import RunConfig
from explorer.experiments.check import check, unchecked, wanted
from explorer.experiments.compare import Compared, Limits, compare
from explorer.experiments.single import STOP_WITHIN_S, WorkerGone
from explorer.experiments.steps import FreshWorker, Order, Steps, StoppedBefore, drive, ready
from explorer.messages import (
    BlockEnded,
    Command,
    Compare,
    Event,
    ParityChecked,
    Problem,
    Profiled,
    RunEnded,
    Samples,
    Stop,
    Verify,
    WorkerLost,
    WorkerReady,
)
from explorer.results.blocks import Blocks
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.proof import Profile
from explorer.results.sample import Sample

HERE = Environment(
    devices=(DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0),),
    platform="Linux",
    python="3.11",
    explorer="1",
)
A, B = RunConfig(), RunConfig(levels=(("attention", "sdpa"),))
COMMAND = Compare(run_ids=(1, 2), arms=(A, B))
PATIENT = Limits(budget_s=1e6)
FAILED = Problem(what="Out of memory", why="too much")


def never() -> bool:
    return False


def ignore(*anything: object) -> None:
    pass


def block(arm: int, pair: int, step_ms: float) -> BlockEnded:
    return BlockEnded(run_id=arm + 1, arm=arm, pair=pair, steps=10, step_ms_median=step_ms, sm_clock_mhz=float("nan"))


def compared(
    batches: Sequence[Sequence[Event]],
    *,
    limits: Limits = PATIENT,
    stop_at: int | None = None,
    command: Compare = COMMAND,
) -> tuple[Compared, list[Order], list[int]]:
    """The outcome, all that was sent, and the pairs that were told of. ``stop_at``: the batch at which to stop."""
    done = 0
    pairs: list[int] = []
    steps = compare(
        command,
        limits=limits,
        asked_to_stop=lambda: stop_at is not None and done > stop_at,
        on_pair=lambda blocks: pairs.append(len(blocks.pairs)),
    )
    sent = list(next(steps))
    for batch in batches:
        done += 1
        try:
            sent += steps.send(batch)
        except StopIteration as end:
            return end.value, sent, pairs
    raise AssertionError(f"not over; sent {sent}")


ENDS = [RunEnded(run_id=1, outcome="stopped"), RunEnded(run_id=2, outcome="stopped")]


def test_that_measuring_ends_by_the_rule_once_eight_pairs_agree() -> None:
    batches = [[block(0, pair, 30.0), block(1, pair, 20.0)] for pair in range(8)]
    result, sent, pairs = compared([*batches, ENDS])
    assert result.ended_by == "settled"
    assert sent == [COMMAND, Stop(run_id=1)]
    assert pairs == list(range(1, 9))
    interval = result.blocks.interval()
    assert interval is not None
    assert (interval.ratio, interval.n_pairs) == (1.5, 8)


def test_that_measuring_ends_when_the_time_is_spent() -> None:
    batches = [[block(0, 0, 30.0)], [block(1, 0, 20.0)], ENDS]
    result, sent, _ = compared(batches, limits=Limits(budget_s=1e-9))
    assert result.ended_by == "budget"
    assert sent == [COMMAND, Stop(run_id=1)]


def test_that_measuring_ends_with_as_many_pairs_as_are_allowed() -> None:
    pairs = [[block(0, pair, 30.0 + 9 * (pair % 2)), block(1, pair, 20.0)] for pair in range(4)]
    result, sent, _ = compared([*pairs, ENDS], limits=Limits(budget_s=1e6, pairs=4))
    assert result.ended_by == "budget"
    assert len(result.blocks.pairs) == 4
    assert sent == [COMMAND, Stop(run_id=1)]


@pytest.mark.parametrize("wrong", [{"budget_s": 0.0}, {"budget_s": float("nan")}, {"pairs": 1}])
def test_that_limits_that_leave_nothing_to_measure_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 2|above 0"):
        Limits(**wrong)  # type: ignore[arg-type]


def test_that_the_time_does_not_run_before_the_first_block() -> None:
    steps = compare(COMMAND, limits=Limits(budget_s=1e-9), asked_to_stop=never, on_pair=ignore)
    assert next(steps) == (COMMAND,)
    assert list(steps.send([])) == list(steps.send([Samples(run_id=1, samples=(sample(1),))])) == []


def test_that_a_stop_keeps_what_was_measured() -> None:
    batches = [[block(0, 0, 30.0), block(1, 0, 20.0)], [block(1, 1, 20.0), block(0, 1, 30.0)], [], ENDS]
    result, sent, _ = compared(batches, stop_at=2)
    assert result.ended_by == "stopped"
    assert sent == [COMMAND, Stop(run_id=1)]
    assert len(result.blocks.pairs) == 2


def sample(peak_bytes: int, phase: str = "steady") -> Sample:
    return Sample(step=0, segment=0, phase=phase, time_s=0.0, tokens=8, step_ms=1.0, peak_allocated_bytes=peak_bytes)


def test_that_peaks_are_each_arms_largest_of_steady_steps() -> None:
    first = Samples(run_id=1, samples=(sample(900, "warmup"), sample(500), sample(700), sample(-1)))
    second = Samples(run_id=2, samples=(sample(300),))
    result, _, _ = compared([[first], [second], ENDS], stop_at=0)
    assert result.peak_bytes == (700, 300)


def test_that_a_failure_is_told_and_the_worker_is_usable_unless_it_died() -> None:
    failed = [RunEnded(run_id=run_id, outcome="failed", problem=FAILED) for run_id in (1, 2)]
    result, _, _ = compared([failed])
    assert (result.problem, result.worker_usable) == (FAILED, True)
    result, _, _ = compared([[WorkerLost(exit_code=-9, last_words="killed")]])
    assert result.problem is not None
    assert result.problem.why == "killed"
    assert not result.worker_usable


PROFILE = Profile(
    device="cpu",
    workload="train",
    steps=1,
    step_ms=1.0,
    kernels=(),
    operators=(),
    products=(),
    attention_softmax=(),
    block_forwards=(1, 1),
)


def test_that_only_what_is_not_known_is_checked() -> None:
    known = {A: unchecked(A), B: unchecked(B)}
    command = wanted(known, run_id=3, parity=True, proof=True, download=False)
    assert command == Verify(run_id=3, parity=(B,), proof=(A, B))  # A is the reference itself
    steps = check(command, known, asked_to_stop=never, on_found=ignore)
    assert next(steps) == (command,)
    steps.send([ParityChecked(run_id=3, config=B, found=FAILED), Profiled(run_id=3, config=A, found=PROFILE)])
    with pytest.raises(StopIteration) as end:
        steps.send([RunEnded(run_id=3, outcome="stopped")])
    found = end.value.value
    assert found[B].parity_problem == str(FAILED)
    assert found[A].proof_verdict == "not proven"
    assert found[B].proof_verdict == "not checked"
    assert wanted(found, run_id=4, parity=True, proof=True, download=False) == Verify(run_id=4, proof=(B,))
    assert wanted(found, run_id=4, parity=True, proof=False, download=False) is None


def test_that_what_a_dead_worker_left_unchecked_has_its_death_for_a_reason() -> None:
    known = {B: unchecked(B)}
    steps = check(Verify(run_id=3, parity=(B,), proof=(B,)), known, asked_to_stop=never, on_found=ignore)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([Profiled(run_id=3, config=B, found=PROFILE), WorkerLost(exit_code=1, last_words="poisoned")])
    assert end.value.value[B].parity_problem == "The worker died: poisoned."
    assert end.value.value[B].ran is not None


def test_that_a_stop_of_checks_is_asked_for_once() -> None:
    steps = check(Verify(run_id=3, proof=(B,)), {B: unchecked(B)}, asked_to_stop=lambda: True, on_found=ignore)
    next(steps)
    assert steps.send([]) == (Stop(run_id=3),)
    assert steps.send([]) == ()


def test_that_a_worker_that_does_not_hear_a_stop_of_checks_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {B: unchecked(B)}
    steps = check(Verify(run_id=3, parity=(B,), proof=(B,)), known, asked_to_stop=lambda: True, on_found=ignore)
    next(steps)
    steps.send([Profiled(run_id=3, config=B, found=PROFILE)])
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + STOP_WITHIN_S + 1)
    with pytest.raises(StopIteration) as end:
        steps.send([])
    assert end.value.value[B].ran is not None
    assert (end.value.value[B].parity, end.value.value[B].parity_problem) == (None, None)


def test_that_a_stop_before_the_worker_is_ready_ends_the_waiting() -> None:
    asked = iter([False, True])
    steps = ready(asked_to_stop=lambda: next(asked))
    next(steps)
    assert steps.send([]) == ()
    with pytest.raises(StoppedBefore):
        steps.send([])


@dataclass
class Scripted:
    """A worker that says it is ready and then answers each command with what the script has next."""

    script: list[list[Event]]
    sent: list[Command] = field(default_factory=list)
    events: list[Event] = field(default_factory=lambda: [WorkerReady(environment=HERE)])
    closed: bool = False

    def send(self, command: Command) -> None:
        self.sent.append(command)
        self.events += self.script.pop(0)

    def drain(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self.closed = True


def test_that_driving_sends_orders_hears_events_and_changes_workers() -> None:
    opened: list[Scripted] = []

    def open_worker() -> Scripted:
        opened.append(Scripted([[ENDS[0]]]))
        return opened[-1]

    def steps() -> Steps[str]:
        yield from ready()
        events = yield (Stop(run_id=1),)
        assert events == ENDS[:1]
        environment = yield from fresh()
        return environment.platform

    def fresh() -> Steps[Environment]:
        events = yield (FreshWorker(),)
        assert isinstance(events[0], WorkerReady)
        return events[0].environment

    heard: list[Event] = []
    assert drive(open_worker, steps(), heard.append) == "Linux"
    assert [worker.closed for worker in opened] == [True, True]
    assert opened[0].sent == [Stop(run_id=1)]
    assert heard == [WorkerReady(environment=HERE), ENDS[0], WorkerReady(environment=HERE)]


def test_that_a_worker_that_cannot_start_ends_the_drive_with_its_last_words() -> None:
    worker = Scripted([], events=[WorkerLost(exit_code=1, last_words="no torch")])
    with pytest.raises(WorkerGone, match="no torch"):
        drive(lambda: worker, ready(), ignore)
    assert worker.closed


def test_that_blocks_of_the_stopped_run_are_blocks() -> None:
    """What settled() sees is what the result has: the blocks are one object."""
    seen: list[Blocks] = []
    steps = compare(COMMAND, limits=Limits(budget_s=1e6), asked_to_stop=never, on_pair=seen.append)
    next(steps)
    steps.send([block(0, 0, 2.0), block(1, 0, 1.0), block(0, 1, 2.0), block(1, 1, 1.0)])
    with pytest.raises(StopIteration) as end:
        steps.send(ENDS)
    assert seen[-1] is end.value.value.blocks


def test_that_of_equal_arms_the_one_that_was_alone_tells_the_peak_of_both() -> None:
    first = Samples(run_id=1, samples=(sample(-1),))
    second = Samples(run_id=2, samples=(sample(300),))
    equal = dataclasses.replace(COMMAND, arms=(COMMAND.arms[0], COMMAND.arms[0]))
    result, _, _ = compared([[first], [second], ENDS], stop_at=0, command=equal)
    assert result.peak_bytes == (300, 300)


def test_that_energy_is_of_each_arms_blocks() -> None:
    def steps(block: int, *readings: tuple[float, float]) -> tuple[Sample, ...]:
        return tuple(
            dataclasses.replace(sample(-1), block=block, step_ms=1000.0, energy_j=joules, read_at_s=at_s)
            for at_s, joules in readings
        )

    alone = Samples(run_id=1, samples=steps(-1, (0.0, 0.0), (9.0, 9e9)))
    first = Samples(
        run_id=1, samples=steps(0, (10.0, 1000.0), (12.0, 1200.0)) + steps(1, (20.0, 5000.0), (22.0, 5200.0))
    )
    result, _, _ = compared([[alone, first, Samples(run_id=2, samples=steps(0, (13.0, 1300.0)))], ENDS], stop_at=0)
    # 200 J in 2 s, twice: 100 W; four steps of 1 s and 8 tokens.
    assert result.joules_per_token[0] == pytest.approx(100.0 * 4.0 / 32)
    assert math.isnan(result.joules_per_token[1]), "one reading tells nothing"
