"""A device that fails on purpose: torch's own errors, raised at a chosen place of a run. Imported by these tests.

On a GPU they are real: more is asked for than any has.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.live_run import LiveRun
from explorer.messages import Command, Event, Reconfigure, RunEnded, Samples, Start
from explorer.optimizations.base import Level, Optimization, Run, Stage

CUDA_WORDS = (
    "CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.19 GiB is "
    "free. Including non-PyTorch memory, this process has 136.60 GiB memory in use."
)

LEAKED: list[torch.Tensor] = []
"""What the level "leak" keeps of a run: 2 GiB."""


def run_out_of_memory(device: torch.device) -> None:
    """Ask for more than there is; on the CPU, which would hand out any address space, say what CUDA says."""
    if device.type == "cuda":
        torch.empty(2**50, dtype=torch.uint8, device=device)
    raise torch.OutOfMemoryError(CUDA_WORDS)


class Failing(Optimization):
    name = "failing"
    label = "Failing"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train", "generate")
    levels = tuple(
        Level(id=id, label=id, help=id)
        for id in ("no", "at_start", "forward", "backward", "third_step", "in_capture", "assert_in_a_kernel", "leak")
    )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        if level == "at_start":
            run_out_of_memory(run.device)
        if level == "leak":
            LEAKED.append(torch.zeros(2**31, dtype=torch.uint8, device=run.device))
        calls = iter(range(10_000))

        def fail(*_: Any) -> None:
            if level == "assert_in_a_kernel":  # an index out of range, by which CUDA ends every later call, too
                torch.zeros(1, device=run.device)[torch.tensor([5], device=run.device)]
            elif level == "third_step":
                if next(calls) == 2:
                    run_out_of_memory(run.device)
            elif level != "leak" and (level != "in_capture" or torch.cuda.is_current_stream_capturing()):
                run_out_of_memory(run.device)

        if level == "backward":
            hook = run.model.transformer.h[0].mlp.c_fc.weight.register_hook(fail)
        else:
            hook = run.model.transformer.h[1].register_forward_hook(fail)
        try:
            yield
        finally:
            hook.remove()


def served(config: RunConfig, *, steps: int | None, then: RunConfig | None = None) -> list[Event]:
    """All events of a run of ``config``, on this thread; ``then``: what it becomes after its first samples."""
    events: list[Event] = []
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    waiting = [then] if then is not None else []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Samples) and waiting:
            commands.put(Reconfigure(run_id=1, config=waiting.pop()))

    LiveRun(Start(run_id=1, config=config, steps=steps), threading.Event(), commands, emit, environment()).serve()
    return events


def end_of(events: list[Event]) -> RunEnded:
    end = events[-1]
    assert isinstance(end, RunEnded)
    return end
