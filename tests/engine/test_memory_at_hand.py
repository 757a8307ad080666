"""What the process holds, asked for between the steps of a run; and its cache given back."""

from __future__ import annotations

import gc
import queue
import re
import threading
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.live_run import LiveRun
from explorer.engine.memory_at_hand import answer
from explorer.messages import (
    CacheEmptied,
    Command,
    EmptyCache,
    Event,
    MemorySummary,
    RunEnded,
    Samples,
    Start,
    SummarizeMemory,
)

MIB = 2**20


def test_that_on_the_cpu_the_summary_says_why_there_is_no_table_and_names_the_largest_tensor() -> None:
    held = {"the_largest": torch.zeros(97, 2**20)}
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        traced = mode.from_tensor(torch.empty(1024, 2**20, device="meta"), static_shapes=False)  # as torch.export does
    told = answer(SummarizeMemory())
    assert isinstance(told, MemorySummary)
    text = "\n".join(told.lines)
    gib = re.search(r"holds ([\d.]+) GiB of this machine's memory", text)
    assert gib is not None
    assert float(gib[1]) >= held["the_largest"].nbytes / 2**30
    if not torch.cuda.is_initialized():
        assert "No CUDA device is in use" in text
        assert told.tables == ()
        assert "float32 (97, 1048576) of 388 MiB in a dict under 'the_largest'" in text
        state = {held.pop("the_largest"): 1}
        told = answer(SummarizeMemory())
        assert isinstance(told, MemorySummary)
        assert any("float32 (97, 1048576) of 388 MiB in a dict, as a key" in line for line in told.lines)
        assert len(state) == 1
        assert len(traced.shape) == 2, "it lived as long"
        assert answer(EmptyCache()) == CacheEmptied(freed_bytes=0, held_bytes=0)


@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_a_run_answers_between_two_steps_and_goes_on(tiny_model: Path, tmp_path: Path, workload: str) -> None:
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 400)
    config = RunConfig(
        workload=workload, model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, max_new_tokens=12
    )
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    for command in (SummarizeMemory(), EmptyCache()):
        commands.put(command)
    events: list[Event] = []
    start = Start(run_id=1, config=config, steps=4 if workload == "train" else None, summarize_memory=True)
    LiveRun(start, threading.Event(), commands, events.append, environment()).serve()
    assert [e.problem for e in events if isinstance(e, RunEnded)] == [None]
    kinds = [type(e) for e in events if isinstance(e, (MemorySummary, CacheEmptied, Samples, RunEnded))]
    assert kinds[:2] == [MemorySummary, CacheEmptied]
    assert kinds.index(Samples) > 1
    assert kinds[-2:] == [MemorySummary, RunEnded], "and after the last step, as it was asked to"
    (end,) = (e for e in events if isinstance(e, RunEnded))
    assert end.outcome == "completed"
    assert sum(len(e.samples) for e in events if isinstance(e, Samples)) == (4 if workload == "train" else 12)


def test_that_what_came_with_the_end_of_a_run_is_answered_after_it(tiny_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 400)
    config = RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16)
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    flag = threading.Event()

    def emit(event: Event) -> None:
        if isinstance(event, Samples) and not flag.is_set():
            commands.put(SummarizeMemory())
            flag.set()

    LiveRun(Start(run_id=1, config=config), flag, commands, emit, environment()).serve()
    assert isinstance(commands.get_nowait(), SummarizeMemory)


@pytest.mark.gpu
def test_that_the_cache_comes_free_and_the_table_is_torchs_own() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    kept = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    # More than is free beside what earlier tests left alive: it must be of a piece of the device's memory of its own,
    # which alone can be given back.
    free = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    cached_bytes = 256 * MIB + free // (2 * MIB) * (2 * MIB)  # the allocator asks for multiples of 2 MiB
    cached = torch.zeros(cached_bytes, dtype=torch.uint8, device="cuda")
    del cached
    told = answer(SummarizeMemory())
    assert isinstance(told, MemorySummary)
    assert told.tables[0] == torch.cuda.memory_summary(0)
    assert any("uint8 (67108864,) of 64 MiB" in line for line in told.lines)
    emptied = answer(EmptyCache())
    assert emptied == CacheEmptied(freed_bytes=cached_bytes, held_bytes=torch.cuda.memory_reserved())
    assert emptied.held_bytes >= kept.nbytes
