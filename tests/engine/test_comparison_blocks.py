from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.disturbance import SleepWatch
from explorer.engine.live_comparison import SOLO_STEPS, LiveComparison
from explorer.engine.session import Session
from explorer.messages import BlockEnded, Compare, Event, Note, RunEnded, Samples, SegmentStarted
from explorer.results.sample import Sample

pytestmark = pytest.mark.usefixtures("short_warm_up")


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> RunConfig:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-3)


def compared(tiny: RunConfig, other: RunConfig, *, blocks: int, **asked: Any) -> list[Event]:
    """All events of a comparison that is stopped after ``blocks`` blocks."""
    events: list[Event] = []
    flag = threading.Event()

    def emit(event: Event) -> None:
        events.append(event)
        if sum(isinstance(e, BlockEnded) for e in events) == blocks:
            flag.set()

    command = Compare(run_ids=(1, 2), arms=(tiny, other), block_s=0.01, block_steps=5, **asked)
    LiveComparison(command, flag, SimpleQueue(), emit, environment()).serve()
    return events


def samples_of(events: list[Event], run_id: int) -> list[Sample]:
    return [s for e in events if isinstance(e, Samples) and e.run_id == run_id for s in e.samples]


def test_that_blocks_follow_each_other_as_abba_or_baab_and_sum_up_their_steps(tiny: RunConfig) -> None:
    events = compared(tiny, tiny.with_level("attention", "sdpa"), blocks=8)
    blocks = [e for e in events if isinstance(e, BlockEnded)]
    assert [b.pair for b in blocks] == [0, 0, 1, 1, 2, 2, 3, 3]
    for first in (0, 4):
        order = "".join("AB"[b.arm] for b in blocks[first : first + 4])
        assert order in ("ABBA", "BAAB")
    for block in blocks:
        assert block.run_id == block.arm + 1
        own = [s for s in samples_of(events, block.run_id) if s.block == block.pair]
        counted = [s.step_ms for s in own if s.phase == "steady"]
        assert own[0].phase == "warmup"  # the first step after a pause does not count
        assert block.steps == len(counted) >= 5
        assert block.step_ms_median == statistics.median(counted)
    ends = [e for e in events if isinstance(e, RunEnded)]
    assert [(e.run_id, e.outcome, e.problem) for e in ends] == [(1, "stopped", None), (2, "stopped", None)]


def test_that_the_order_is_drawn_by_seed(tiny: RunConfig) -> None:
    orders = {
        seed: [e.arm for e in compared(tiny, tiny, blocks=2, seed=seed) if isinstance(e, BlockEnded)][:2]
        for seed in range(2)
    }
    assert [0, 1] in orders.values()
    assert [1, 0] in orders.values()


def test_that_both_arms_see_the_same_batches_from_the_same_weights(tiny: RunConfig) -> None:
    still = dataclasses.replace(tiny, lr=0.0).with_level("dropout", "off")
    events = compared(still, still.with_level("attention", "sdpa"), blocks=2)
    losses = [[s.loss for s in samples_of(events, run_id)[: 10 + SOLO_STEPS]] for run_id in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(set(losses[0])) > 10  # batches differ from step to step


def test_that_memory_is_told_of_solo_steps_only(tiny: RunConfig) -> None:
    events = compared(tiny, tiny.with_level("gelu", "torch"), blocks=2)
    firsts, seconds = samples_of(events, 1), samples_of(events, 2)
    began = {e.run_id: i for i, e in enumerate(events) if isinstance(e, SegmentStarted)}
    assert len(began) == 2
    for samples in (firsts, seconds):
        assert all(s.peak_allocated_bytes == -1 for s in samples if s.block >= 0)
    solo = [s for s in seconds if s.block < 0 and s.phase == "steady"]
    assert len(solo) >= SOLO_STEPS
    assert all(s.peak_allocated_bytes > 0 for s in solo)
    # A warms up twice: alone, and again once B holds memory beside it.
    before = [s for e in events[: began[2]] if isinstance(e, Samples) for s in e.samples]
    after = [s for e in events[began[2] :] if isinstance(e, Samples) and e.run_id == 1 for s in e.samples]
    assert all(s.peak_allocated_bytes > 0 for s in before if s.phase == "steady")
    assert sum(s.phase == "steady" for s in before) >= SOLO_STEPS
    assert all(s.peak_allocated_bytes == -1 for s in after)


def test_that_a_block_tells_that_the_machine_slept_within_it(tiny: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[int] = []

    class Sleepy(SleepWatch):
        def __init__(self) -> None:
            # Awake until the first block has ended, asleep for an hour within the second.
            super().__init__(lambda: 0.0 if len(pairs) < 1 else 3600.0)

    monkeypatch.setattr("explorer.engine.task.SleepWatch", Sleepy)
    monkeypatch.setattr(
        "explorer.engine.live_comparison.BlockEnded", lambda **fields: pairs.append(1) or BlockEnded(**fields)
    )
    events = compared(tiny, tiny, blocks=4)
    assert [e.slept for e in events if isinstance(e, BlockEnded)] == [False, True, False, False]
    assert sum(isinstance(e, Note) and "slept for 3600 s" in e.text for e in events) >= 1


def test_that_equal_arms_are_alone_once_and_both_begin(tiny: RunConfig) -> None:
    events = compared(tiny, tiny, blocks=2)
    assert [e.run_id for e in events if isinstance(e, SegmentStarted)] == [2, 1]
    assert all(s.peak_allocated_bytes == -1 for s in samples_of(events, 1))
    assert any(s.peak_allocated_bytes > 0 for s in samples_of(events, 2))


def test_that_arms_that_do_not_fit_together_are_built_anew_for_each_block(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that holds one session: opening a second one is out of memory, as on a card that is full."""
    alive: list[Session] = []

    class OneAtATime(Session):
        def __init__(self, *args: object, **options: object) -> None:
            if alive:
                raise torch.OutOfMemoryError("CUDA out of memory")
            super().__init__(*args, **options)  # type: ignore[arg-type]
            alive.append(self)

        def __exit__(self, *error: object) -> None:
            alive.remove(self)
            super().__exit__(*error)  # type: ignore[arg-type]

    monkeypatch.setattr("explorer.engine.task.Session", OneAtATime)
    events = compared(tiny, tiny.with_level("gelu", "torch"), blocks=2)
    assert [e.arm for e in events if isinstance(e, BlockEnded)] in ([0, 1], [1, 0])
    assert all(e.problem is None for e in events if isinstance(e, RunEnded))
    in_blocks = [s for s in samples_of(events, 1) if s.block >= 0]
    assert all(s.peak_allocated_bytes > 0 for s in in_blocks)  # alone, so its peak is its own
    assert alive == []


def test_that_a_delay_lengthens_each_of_bs_steps_by_a_share_of_what_they_took(tiny: RunConfig) -> None:
    events = compared(tiny, tiny, blocks=4, delays=(3.0,))
    samples = samples_of(events, 2)
    solo = statistics.median([s.step_ms for s in samples if s.block < 0 and s.phase == "steady"])
    in_blocks = [s.step_ms for s in samples if s.block >= 0]
    assert len(in_blocks) >= 10
    assert min(in_blocks) > 3 * solo


def test_that_b_has_a_block_a_pair_for_each_delay_and_the_order_is_mirrored(tiny: RunConfig) -> None:
    events = compared(tiny, tiny, blocks=12, delays=(0.0, 3.0))
    blocks = [e for e in events if isinstance(e, BlockEnded)]
    orders = [[b.arm for b in blocks if b.pair == pair] for pair in range(4)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert (orders[1], orders[3]) == (orders[0][::-1], orders[2][::-1])
    assert {(b.arm, b.run_id) for b in blocks} == {(0, 1), (1, 2), (2, 2)}
    ms = [statistics.median(b.step_ms_median for b in blocks if b.arm == arm) for arm in range(3)]
    assert ms[2] > 2 * ms[1], "only the blocks of its own are delayed"
    assert ms[2] > 2 * ms[0]


def test_that_a_whose_peak_is_known_is_not_alone_first(tiny: RunConfig) -> None:
    events = compared(tiny, tiny.with_level("gelu", "torch"), blocks=2, a_alone=False)
    assert [e.run_id for e in events if isinstance(e, SegmentStarted)] == [2, 1]
    assert all(s.peak_allocated_bytes == -1 for s in samples_of(events, 1))
    # Beside B it is warm at its first steady step, and then blocks begin.
    assert sum(s.phase == "steady" for s in samples_of(events, 1) if s.block < 0) == 1


class _Late:
    """The mark of a step that is over only when it is waited for, as on a device that is behind."""

    def __init__(self, device: object) -> None:
        self.seconds, self._waited = time.perf_counter(), False

    def done(self) -> bool:
        return self._waited

    def wait(self) -> None:
        self._waited = True

    def ms_after(self, earlier: _Late) -> float:
        return (self.seconds - earlier.seconds) * 1e3


def test_that_steps_under_way_count_so_that_a_block_is_no_longer_than_asked(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.engine.timing.mark", _Late)
    command = Compare(run_ids=(1, 2), arms=(tiny, tiny), block_s=1e-6, block_steps=8)
    blocks: list[BlockEnded] = []
    flag = threading.Event()

    def emit(event: Event) -> None:
        if isinstance(event, BlockEnded):
            blocks.append(event)
            flag.set()

    LiveComparison(command, flag, SimpleQueue(), emit, environment()).serve()
    assert [block.steps for block in blocks] == [8]


def test_that_generation_is_refused(tiny: RunConfig) -> None:
    other = dataclasses.replace(tiny, workload="generate")
    events = compared(tiny, other, blocks=1)
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.problem is not None
    assert ended.problem.bad_request
    assert samples_of(events, 1) == []
