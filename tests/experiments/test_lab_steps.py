"""The lab as steps: what is asked for, what is kept, and what a failure, a dead worker or a stop leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from scripted import CPU, HERE

from explorer.experiments.kept import Kept, state_path
from explorer.experiments.lab import Wanted, lab, lab_cases, lab_conditions
from explorer.experiments.steps import FreshWorker, Order
from explorer.messages import Bench, Benched, Event, Problem, RunEnded, Stop, WorkerLost, WorkerReady
from explorer.results.environment import DeviceInfo
from explorer.results.lab import OPERATIONS, Case, LabRow, Outcome

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="Big GPU", total_memory_bytes=2**36, bf16=True)
CASES = [Case(operation="gelu", dtype="float32", shape=(rows, 8)) for rows in (4, 16)]
WANTED = [Wanted(case=case, variants=("hf", "torch", "triton")) for case in CASES]

Says = Callable[[Case, str], Outcome | Event]


class Answers:
    """Plays the worker: ``says`` tells how each variant ends, or what comes in its place."""

    def __init__(self, says: Says = lambda case, variant: "measured") -> None:
        self.sent: list[Order] = []
        self._says = says

    @property
    def benched(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(order.case.shape[0], order.variants) for order in self.sent if isinstance(order, Bench)]

    def to(self, orders: Sequence[Order]) -> list[Event]:
        events: list[Event] = []
        for order in orders:
            self.sent.append(order)
            match order:
                case FreshWorker():
                    events.append(WorkerReady(environment=HERE))
                case Bench():
                    events += self._bench(order)
                case Stop():
                    events.append(RunEnded(run_id=order.run_id, outcome="stopped"))
                case _:
                    raise AssertionError(order)
        return events

    def _bench(self, bench: Bench) -> list[Event]:
        events: list[Event] = []
        for variant in bench.variants:
            found = self._says(bench.case, variant)
            if not isinstance(found, str):
                return [*events, found]
            row = LabRow(case=bench.case, variant=variant, outcome=found, time_us=5.0)
            events.append(Benched(run_id=bench.run_id, row=row))
            if found == "failed":
                break
        return [*events, RunEnded(run_id=bench.run_id, outcome="completed")]


def played(
    answers: Answers, path: Path | None = None, asked_to_stop: Callable[[], bool] = lambda: False
) -> list[tuple[int, str, Outcome]]:
    steps = lab(
        WANTED,
        device=CPU,
        quick=True,
        kept=Kept(path, lab_conditions(CPU, HERE, quick=True)),
        asked_to_stop=asked_to_stop,
        on_part=lambda name, left: None,
        on_rows=lambda rows: None,
        next_id=count(1).__next__,
    )
    try:
        orders = next(steps)
        while True:
            orders = steps.send(answers.to(orders))
    except StopIteration as end:
        return [(row.case.shape[0], row.variant, row.outcome) for row in end.value]


def test_that_each_case_is_one_command_and_each_variant_one_row() -> None:
    answers = Answers()
    rows = played(answers)
    assert answers.benched == [(4, ("hf", "torch", "triton")), (16, ("hf", "torch", "triton"))]
    assert rows == [(n, v, "measured") for n in (4, 16) for v in ("hf", "torch", "triton")]


def test_that_after_a_variant_that_failed_the_next_ones_have_a_fresh_worker() -> None:
    answers = Answers(lambda case, variant: "failed" if (case.shape[0], variant) == (4, "torch") else "measured")
    rows = played(answers)
    assert [outcome for _, _, outcome in rows] == ["measured", "failed", *["measured"] * 4]
    assert answers.benched == [(4, ("hf", "torch", "triton")), (4, ("triton",)), (16, ("hf", "torch", "triton"))]
    assert sum(isinstance(order, FreshWorker) for order in answers.sent) == 1


@pytest.mark.parametrize(
    "end",
    [
        WorkerLost(exit_code=-11, last_words="segfault"),
        RunEnded(run_id=1, outcome="failed", problem=Problem(what="Bad", why="no device")),
    ],
    ids=["dies", "fails"],
)
def test_that_a_worker_that_ends_within_a_variant_leaves_its_row(end: Event) -> None:
    answers = Answers(lambda case, variant: end if (case.shape[0], variant) == (4, "hf") else "measured")
    rows = played(answers)
    assert rows[:3] == [(4, "hf", "failed"), (4, "torch", "measured"), (4, "triton", "measured")]
    assert sum(isinstance(order, FreshWorker) for order in answers.sent) == 1


def test_that_it_goes_on_where_it_ended_and_tries_again_what_failed(tmp_path: Path) -> None:
    path = state_path(tmp_path / "lab.csv")
    first = Answers(lambda case, variant: "failed" if variant == "torch" else "measured")
    played(first, path, asked_to_stop=lambda: len(first.benched) >= 2)
    again = Answers()
    rows = played(again, path)
    assert again.benched == [(4, ("torch",)), (16, ("hf", "torch", "triton"))]
    assert sorted(rows) == sorted(played(Answers()))
    with pytest.raises(ValueError, match="measured with quick True"):
        Kept(path, lab_conditions(CPU, HERE, quick=False))


def test_that_a_stop_ends_it_with_what_there_is() -> None:
    answers = Answers(lambda case, variant: "measured" if variant == "hf" else WorkerReady(environment=HERE))
    asked = iter([False] * 2 + [True] * 50)
    assert played(answers, asked_to_stop=lambda: next(asked)) == [(4, "hf", "measured")]
    assert [order.run_id for order in answers.sent if isinstance(order, Stop)] == [1]


def test_that_a_worker_that_does_not_hear_a_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Answers):
        def to(self, orders: Sequence[Order]) -> list[Event]:
            return super().to([order for order in orders if not isinstance(order, Stop)])

    now_s = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now_s)))
    answers = Deaf(lambda case, variant: "measured" if variant == "hf" else WorkerReady(environment=HERE))
    asked = iter([False] * 2 + [True] * 50)
    assert played(answers, asked_to_stop=lambda: next(asked)) == [(4, "hf", "measured")]
    assert not any(isinstance(order, FreshWorker) for order in answers.sent)


def test_that_every_operation_has_cases_on_either_device_and_each_case_its_dimensions() -> None:
    for device in (CPU, GPU):
        for quick in (True, False):
            found = lab_cases(device, quick=quick)
            assert {one.case.operation for one in found} == OPERATIONS.keys()
            for one in found:
                operation = OPERATIONS[one.case.operation]
                assert len(one.case.shape) == len(operation.dimensions)
                assert set(one.variants) <= set(operation.variants)
    assert "triton" not in {v for one in lab_cases(CPU, quick=False) for v in one.variants}
    shapes = {one.case.shape[2] for one in lab_cases(GPU, quick=False, only=["attention"])}
    assert {128, 16384} <= shapes


def test_that_only_some_operations_and_variants_can_be_asked_for() -> None:
    found = lab_cases(GPU, quick=True, only=["gelu"], variants=["triton"])
    assert {one.case.operation for one in found} == {"gelu", "gelu_backward"}
    assert {one.variants for one in found} == {("triton",)}


@pytest.mark.parametrize(
    ("only", "variants", "words"),
    [
        (["relu"], [], "no operation relu; allowed: gelu"),
        ([], ["fast"], "no variant fast; allowed: hf"),
        (["gelu"], ["triton"], "has a variant triton on CPU"),
    ],
)
def test_that_what_is_not_there_is_refused(only: list[str], variants: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lab_cases(CPU, quick=True, only=only, variants=variants)
