"""Parity as the worker checks it, of configurations in turn."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.verification import Verification
from explorer.messages import Event, ParityChecked, Problem, RunEnded, Verify
from explorer.results.parity import Parity


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> RunConfig:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(500)))
    off = (("dropout", "off"),)
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=1, seq=8, levels=off)


def events_of(command: Verify, *, stop_after: int | None = None) -> list[Event]:
    events: list[Event] = []
    flag = threading.Event()

    def emit(event: Event) -> None:
        events.append(event)
        if len(events) == stop_after:
            flag.set()

    Verification(command, flag, queue.SimpleQueue(), emit, environment()).serve()
    return events


def test_that_a_check_that_fails_leaves_the_others_their_result(tiny: RunConfig) -> None:
    impossible = tiny.with_level("attention", "flash")
    sdpa = tiny.with_level("attention", "sdpa")
    events = events_of(Verify(run_id=5, parity=(impossible, sdpa)))
    first, second = (e for e in events if isinstance(e, ParityChecked))
    assert (first.config, second.config) == (impossible, sdpa)
    assert isinstance(first.found, Problem)
    assert "flash" in str(first.found)
    assert isinstance(second.found, Parity)
    assert second.found.ok, second.found.worst
    assert len(second.found.asked.losses) == 20
    assert second.found.new_tokens > 30  # training's numbers, and the text that the same toggles write
    assert second.found.first_divergence is None
    assert second.found.asked.text == second.found.reference.text != ""
    assert events[-1] == RunEnded(run_id=5, outcome="completed")


def test_that_a_stop_ends_the_checks(tiny: RunConfig) -> None:
    events = events_of(Verify(run_id=5, parity=(tiny.with_level("gelu", "torch"),)), stop_after=1)
    assert events[-1] == RunEnded(run_id=5, outcome="stopped")
    assert not any(isinstance(e, ParityChecked) for e in events)


def test_that_nothing_to_verify_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to verify"):
        Verify(run_id=1)
