"""Two texts one after the other, against a worker that is a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from explorer.config import RunConfig
from explorer.experiments.steps import Order
from explorer.experiments.texts import BothTexts, alike, write_both
from explorer.messages import Event, Problem, RunEnded, Samples, Start, Stop, Text, WorkerLost
from explorer.results.sample import Sample
from explorer.results.text_pair import Written

A = RunConfig(workload="generate", prompt="def ", seed=3)
B = RunConfig(workload="generate", prompt="class ", seed=4, levels=(("weight_dtype", "bf16"),))
IDS = (7, 8)


def token(run_id: int, text: str, step: int, step_ms: float) -> list[Event]:
    phase = ("prefill", "compile", "steady")[min(step, 2)]
    sample = Sample(step=step, segment=0, phase=phase, time_s=0.0, tokens=1, step_ms=step_ms)  # type: ignore[arg-type]
    return [Samples(run_id=run_id, samples=(sample,)), Text(run_id=run_id, text=text)]


class Heard:
    """What the steps told on the way."""

    def __init__(self, stop_after: int = 99) -> None:
        self.pieces: list[tuple[int, str]] = []
        self.written: list[int] = []
        self._stop_after = stop_after

    def stop(self) -> bool:
        return len(self.pieces) >= self._stop_after

    def drive(self, *answers: Sequence[Event]) -> tuple[list[Order], BothTexts]:
        """The orders that came while the worker answered so, turn by turn, and what it came to."""
        steps = write_both(
            IDS,
            alike((A, B)),
            download=False,
            asked_to_stop=self.stop,
            on_text=lambda arm, text: self.pieces.append((arm, text)),
            on_written=lambda arm, _: self.written.append(arm),
        )
        orders = list(next(steps))
        for events in answers:
            try:
                orders += steps.send(events)
            except StopIteration as end:
                return orders, end.value
        raise AssertionError("it goes on")


def over(run_id: int, **fields: object) -> RunEnded:
    return RunEnded(run_id=run_id, **{"outcome": "completed", **fields})  # type: ignore[arg-type]


def test_that_b_writes_after_a_from_its_prompt_and_seed() -> None:
    heard = Heard()
    first = [*token(7, "x", 0, 30.0), *token(7, "y", 1, 9.0)]
    orders, both = heard.drive(first, [*token(7, "z", 2, 2.0), over(7)], [*token(8, "x", 0, 20.0)], [over(8)])
    starts = [order for order in orders if isinstance(order, Start)]
    assert [start.config for start in starts] == [A, dataclasses.replace(B, prompt="def ", seed=3)]
    assert both == BothTexts(
        arms=(
            Written(text="xyz", tokens_per_s=500.0, first_token_ms=30.0),
            Written(text="x", tokens_per_s=None, first_token_ms=20.0),
        )
    )
    assert heard.pieces == [(0, "x"), (0, "y"), (0, "z"), (1, "x")]
    assert heard.written == [0, 1]


def test_that_a_stop_ends_the_text_and_begins_no_other() -> None:
    heard = Heard(stop_after=1)
    orders, both = heard.drive([*token(7, "x", 0, 30.0)], [], [over(7, outcome="stopped")])
    assert [type(order) for order in orders] == [Start, Stop]
    assert [written.text for written in both.arms] == ["x"]
    assert both.problem is None


def test_that_what_fails_is_told_with_what_there_is() -> None:
    problem = Problem(what="Out of memory", why="too much", out_of_memory=True, spent=True)
    _, both = Heard().drive([over(7)], [over(8, outcome="failed", problem=problem)])
    assert (len(both.arms), both.problem, both.worker_usable) == (1, problem, False)
    _, both = Heard().drive([WorkerLost(exit_code=-9, last_words="")])
    assert (len(both.arms), both.worker_usable) == (0, False)
    assert "died" in str(both.problem)
