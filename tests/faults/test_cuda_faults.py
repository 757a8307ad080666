"""Faults of a real device: memory that runs out again and again, and a kernel that spoils its process.

``pytest -m gpu tests/faults/test_cuda_faults.py`` ends with a table: the fault, what was done, what held.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from failing import LEAKED, Failing, end_of, served
from processes import running, until
from windows import at_work
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.isolation import ProcessWorker
from explorer.engine.live_run import LiveRun
from explorer.engine.nvml import find_device, memory_by_process, open_nvml
from explorer.messages import Command, Event, Reconfigure, Samples, SegmentStarted, Start, WorkerLost, WorkerReady
from explorer.optimizations import registry
from explorer.results.store import Store

pytestmark = pytest.mark.gpu
TIMES = 200
MIB = 2**20
ROOT = Path(__file__).parents[2]
Tried = Callable[[str, str, str], None]


@pytest.fixture
def on_gpu(tiny: RunConfig) -> RunConfig:
    return dataclasses.replace(tiny, device="cuda:0")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "OPTIMIZATIONS", (*registry.OPTIMIZATIONS, Failing()))


def held_bytes(process_id: int) -> int:
    """What a process holds of the device, whatever others do; 0 where it is not there any more."""
    nvml, problem = open_nvml()
    assert nvml is not None, problem
    handle, problem = find_device(nvml, str(torch.cuda.get_device_properties(0).uuid))
    assert handle is not None, problem
    return memory_by_process(nvml, handle).get(process_id) or 0


# ---- memory


def test_that_memory_runs_out_two_hundred_times_without_growth(failing: None, on_gpu: RunConfig, tried: Tried) -> None:
    text = dataclasses.replace(on_gpu, workload="generate", max_new_tokens=5)
    faults = {
        # The logits of 512 x 64 tokens alone take 1 GiB, and this process may have half of that.
        "a batch too large": (dataclasses.replace(on_gpu, batch=512, seq=64), 3),
        "at start": (on_gpu.with_level("failing", "at_start"), 3),
        "in forward": (on_gpu.with_level("failing", "forward"), 3),
        "in backward": (on_gpu.with_level("failing", "backward"), 3),
        "mid-run": (on_gpu.with_level("failing", "third_step"), 5),
        "in generation": (text.with_level("failing", "third_step"), None),
    }
    assert end_of(served(on_gpu, steps=2)).outcome == "completed"
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**29 / total_bytes)
    allocated: list[int] = []
    reserved: list[int] = []
    try:
        for place, (config, steps) in itertools.islice(itertools.cycle(faults.items()), TIMES):
            end = end_of(served(config, steps=steps))
            assert end.problem is not None, place
            assert (end.problem.out_of_memory, end.problem.spent) == (True, False), (place, end.problem)
            allocated.append(torch.cuda.memory_allocated())
            reserved.append(torch.cuda.memory_reserved())
        assert end_of(served(on_gpu, steps=2)).outcome == "completed"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    first = len(faults)  # each has been once: what stays from then on is libraries' workspaces
    grown_bytes = max(allocated[first:]) - allocated[first - 1]
    assert grown_bytes < MIB
    assert max(reserved[first:]) <= max(reserved[:first])
    tried(
        f"out of memory, {TIMES} times: {', '.join(faults)}",
        "each a run of its own in one worker's process",
        f"told each time, allocated memory grew by {grown_bytes} bytes, the run after it completed",
    )


def test_that_memory_running_out_by_a_toggle_ends_the_run_in_words_and_the_next_one_runs(
    failing: None, on_gpu: RunConfig, tried: Tried
) -> None:
    assert end_of(served(on_gpu, steps=2)).outcome == "completed"
    before_bytes = torch.cuda.memory_allocated()
    events = served(on_gpu, steps=None, then=on_gpu.with_level("failing", "backward"))
    end = end_of(events)
    assert end.problem is not None
    assert (end.problem.out_of_memory, end.problem.spent) == (True, False)
    assert sum(len(event.samples) for event in events if isinstance(event, Samples)) > 0
    assert torch.cuda.memory_allocated() - before_bytes < MIB
    assert end_of(served(on_gpu, steps=2)).outcome == "completed"
    tried("out of memory after a toggle", "a running run reconfigured", f"told ({end.problem.why}); steps kept")


def test_that_toggling_two_hundred_times_grows_nothing(on_gpu: RunConfig, tried: Tried) -> None:
    other = on_gpu
    for name, level in (("attention", "sdpa"), ("precision", "bf16"), ("gelu", "triton"), ("cuda_graph", "on")):
        other = registry.with_level(other, name, level)
    for config in (on_gpu, other):  # cuBLAS keeps a workspace for each stream: torch's own, and a recording's two
        assert end_of(served(config, steps=5)).outcome == "completed"
    before_bytes = torch.cuda.memory_allocated()
    flag = threading.Event()
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    events: list[Event] = []
    held: list[int] = []
    asked: list[RunConfig] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, SegmentStarted):
            held.append(torch.cuda.memory_allocated())
        if isinstance(event, Samples) and len(held) == len(asked) + 1:  # the last change has been made
            if len(asked) == TIMES:
                flag.set()
                return
            asked.append(on_gpu if len(asked) % 2 else other)
            commands.put(Reconfigure(run_id=1, config=asked[-1]))

    LiveRun(Start(run_id=1, config=on_gpu), flag, commands, emit, environment()).serve()
    assert end_of(events).outcome == "stopped", end_of(events).problem
    assert len(held) == TIMES + 1
    # From the third of each kind on: optimizer state is made by the first step, workspaces by the first capture.
    grown = [max(held[first::2]) - held[first] for first in (5, 6)]
    assert max(grown) < MIB, grown
    assert torch.cuda.memory_allocated() - before_bytes < MIB
    tried(
        f"{TIMES} live changes",
        "attention, precision, GeLU and a whole-step CUDA graph flipped at once, on and off",
        f"memory at equal settings grew by {max(grown)} bytes, all of it given back at the end",
    )


def test_that_tensors_which_a_run_leaves_alive_are_named(failing: None, on_gpu: RunConfig, tried: Tried) -> None:
    try:
        end = end_of(served(on_gpu.with_level("failing", "leak"), steps=2))
    finally:
        LEAKED.clear()
        torch.cuda.empty_cache()
    assert end.problem is not None
    assert end.problem.spent
    assert "2.00 GiB of the run were not given back: uint8 (2147483648,) of 2,048 MiB in a list" in str(end.problem)
    tried(
        "2 GiB left alive", "a toggle that keeps a tensor", "told by shape, format and holder; the worker is replaced"
    )


# ---- in a process that may be spoilt

CHILD = """
import json, sys
import torch
sys.path[:0] = json.loads(sys.argv[1])
from failing import Failing, end_of, served
from explorer.config import RunConfig
from explorer.optimizations import registry
registry.OPTIMIZATIONS = (*registry.OPTIMIZATIONS, Failing())
config = RunConfig.from_dict(json.loads(sys.argv[2]))
end = end_of(served(config.with_level("failing", sys.argv[3]), steps=40))
said = {"outcome": end.outcome, "problem": str(end.problem)}
if end.problem is not None:
    said |= {"spent": end.problem.spent, "out_of_memory": end.problem.out_of_memory}
    if not end.problem.spent:
        said["after"] = end_of(served(config, steps=40)).outcome
print(json.dumps(said))
"""


def in_a_child(config: RunConfig, level: str) -> dict[str, object]:
    """What came of a run that fails at ``level`` in a process of its own, and of the run after it."""
    places = json.dumps([str(Path(__file__).parent), str(ROOT)])
    command = [sys.executable, "-c", CHILD, places, json.dumps(config.to_dict()), level]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_that_memory_running_out_while_a_graph_is_recorded_is_told(on_gpu: RunConfig, tried: Tried) -> None:
    said = in_a_child(registry.with_level(on_gpu, "cuda_graph", "on"), "in_capture")
    assert (said["outcome"], said["out_of_memory"]) == ("failed", True), said
    # Either the process is whole, or it is known to be spoilt: never a next run that fails for no reason of its own.
    assert said["spent"] or said["after"] == "completed", said
    what = "its process is replaced" if said["spent"] else "the next graph in the same process was recorded"
    tried("out of memory in capture", "2^50 bytes asked for while a step is recorded", f"told; {what}")


@pytest.mark.alone
def test_that_a_kernel_that_spoils_its_process_is_told_as_such_and_another_process_serves(
    on_gpu: RunConfig, tried: Tried
) -> None:
    said = in_a_child(on_gpu, "assert_in_a_kernel")
    assert (said["outcome"], said["spent"]) == ("failed", True), said
    assert "The next run needs a new worker." in str(said["problem"])
    talk = Talk(ProcessWorker())
    try:
        began_s = time.monotonic()
        talk.until(lambda e: isinstance(e, WorkerReady))
        ready_s = time.monotonic() - began_s
        assert ready_s < 10
        talk.worker.send(Start(run_id=1, config=on_gpu, steps=2))
        assert talk.ended(1).outcome == "completed"
    finally:
        talk.worker.close()
    tried(
        "an assert in a kernel", "an index out of range", f"told as spoilt; a new worker was ready in {ready_s:.1f} s"
    )


# ---- processes that are killed


def test_that_a_killed_worker_gives_its_memory_back_and_is_noticed(on_gpu: RunConfig, tried: Tried) -> None:
    worker = ProcessWorker()
    talk = Talk(worker)
    try:
        talk.until(lambda e: isinstance(e, WorkerReady))
        worker.send(Start(run_id=1, config=on_gpu))
        talk.until(lambda e: isinstance(e, Samples))
        before_bytes = held_bytes(worker.process_id)
        assert before_bytes > 100 * MIB
        os.kill(worker.process_id, signal.SIGKILL)
        killed_s = time.monotonic()
        lost = talk.until(lambda e: isinstance(e, WorkerLost), within_s=2)
        noticed_s = time.monotonic() - killed_s
        freed_s = until(lambda: held_bytes(worker.process_id) == 0, within_s=2)
        assert isinstance(lost, WorkerLost)
        assert "SIGKILL" in lost.how
    finally:
        worker.close()
    tried(
        "the worker killed (SIGKILL) while it trains",
        f"{before_bytes / MIB:,.0f} MiB held",
        f"noticed after {noticed_s:.2f} s, memory back after {noticed_s + freed_s:.2f} s",
    )


def test_that_with_a_killed_window_its_worker_and_its_memory_go_within_a_second(
    on_gpu: RunConfig, tmp_path: Path, tried: Tried
) -> None:
    pytest.importorskip("PySide6")
    with at_work(on_gpu, tmp_path, steps=300) as seen:
        assert held_bytes(seen.worker_id) > 100 * MIB
        seen.window.kill()
        seen.window.wait()
        gone_s = until(lambda: not running(seen.worker_id), within_s=1)
        freed_s = gone_s + until(lambda: held_bytes(seen.worker_id) == 0, within_s=1)
    with Store(seen.store, read_only=True) as stored:
        (line,) = stored.runs().runs
    assert line.samples >= seen.steps
    tried(
        "the window killed (SIGKILL) while it trains",
        "its worker and the GPU watched from outside",
        f"worker gone after {gone_s:.2f} s, memory after {freed_s:.2f} s; {line.samples} steps stored, the file whole",
    )
