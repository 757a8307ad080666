"""Profile some steps of a configuration, in a process of its own: see ``proof.py`` for why."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from explorer.config import RunConfig
from explorer.engine.apart import Report, apart, in_session, never, silent
from explorer.engine.errors import BadRequest
from explorer.messages import Problem
from explorer.results.step_profile import StepProfile

if TYPE_CHECKING:
    from explorer.engine.session import Session

WARM_UP_ROUNDS = 5
"""Kernels load and compile, autotuning and the allocator settle, and graphs are recorded."""
LEAST_TIMED = 5
TRACE_NAME = "trace.json"
MEMORY_NAME = "memory.pickle"
MEMORY_ENTRIES = 200_000
"""Allocations and releases that a snapshot looks back at."""


def steps_profile_of(
    config: RunConfig,
    *,
    steps: int,
    folder: str = "",
    memory: bool = False,
    download: bool = False,
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> StepProfile | Problem:
    """The profile of ``steps`` steps of ``config``, or of a text of a prefill and as many tokens after it.

    Taken in a spawned process that is gone when this returns. ``folder``: where the Chrome trace is left, and with
    ``memory`` a snapshot of the allocator's record of as many steps more; empty: nowhere.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    work = partial(_profile, config, steps=steps, folder=folder, memory=memory, download=download)
    return apart(work, report=report, cancelled=cancelled)


def _profile(
    config: RunConfig, report: Report, *, steps: int, folder: str, memory: bool, download: bool
) -> StepProfile | Problem:
    report("importing torch")

    def use(session: Session) -> StepProfile:
        return profile_steps(
            session, steps=steps, folder=Path(folder) if folder else None, memory=memory, report=report
        )

    return in_session(fitted(config, steps), use, download=download, report=report)


def fitted(config: RunConfig, steps: int) -> RunConfig:
    """``config`` as ``profile_steps`` must have it: in generation, with as many tokens as that takes."""
    if config.workload == "train":
        return config
    return dataclasses.replace(config, max_new_tokens=1 + steps, stop=())


def profile_steps(
    session: Session, *, steps: int, folder: Path | None = None, memory: bool = False, report: Report = silent
) -> StepProfile:
    """Profile ``session``, in which a segment of a ``fitted`` configuration has begun.

    It can go on afterwards: its steps were steps as any others, and nothing is left in the model.

    Raises:
        BadRequest: ``memory`` is asked for where there is no allocator that keeps a record.
        RuntimeError: the profiler records nothing on this device.
    """
    from explorer.engine.parts import parts_in_trace
    from explorer.engine.proof import traced
    from explorer.engine.step_trace import read_steps

    run, workload = session.run, session.config.workload
    kind: Literal["cuda", "cpu"] = "cuda" if run.device.type == "cuda" else "cpu"
    if memory and (kind == "cpu" or folder is None):
        raise BadRequest(
            what="No memory snapshot",
            why="only the allocator of a CUDA device keeps a record of what it gave out",
            remedy="Leave it out, or choose a CUDA device.",
        )
    rounds = steps if workload == "train" else 1
    report("warming up")
    _rounds(session, WARM_UP_ROUNDS)
    report("timing steps without the profiler")
    round_ms = statistics.median(_rounds(session, max(rounds, LEAST_TIMED)))
    report("profiling")
    trace_file = None if folder is None else folder / TRACE_NAME
    with parts_in_trace():
        events = traced(lambda: _rounds(session, rounds), run.device, keep=trace_file)
    memory_file = None
    if memory and folder is not None:
        report("recording the memory")
        memory_file = folder / MEMORY_NAME
        _record_memory(session, rounds, memory_file)
    report("reading the trace")
    return read_steps(
        events,
        device=kind,
        workload=workload,
        rounds=rounds,
        passes=1 if workload == "train" else 1 + steps,
        round_ms=round_ms,
        replayed=session.loop.replays,
        trace_file="" if trace_file is None else str(trace_file),
        memory_file="" if memory_file is None else str(memory_file),
    )


def _rounds(session: Session, count: int) -> list[float]:
    """Do ``count`` training steps, or as often the whole text, wait for the last, and return how long each took, in ms.

    Training steps follow one another without a wait, as they do in a run.
    """
    from explorer.engine.parts import part
    from explorer.engine.step_trace import STEP
    from explorer.engine.training import TrainingLoop

    loop = session.loop
    if isinstance(loop, TrainingLoop):
        loop.go_on()
        for _ in range(count):
            with part(STEP):
                loop.step()
        return [sample.step_ms for sample in loop.collect(all_of_them=True)]
    times = []
    for _ in range(count):
        with part(STEP):
            loop.begin_text()
        while not loop.finished:
            with part(STEP):
                loop.step()
        times.append(sum(sample.step_ms for sample in loop.collect(all_of_them=True)))
    return times


def _record_memory(session: Session, rounds: int, file: Path) -> None:
    """Do ``rounds`` more and leave in ``file`` what was allocated and released in them, and by which lines.

    pytorch.org/memory_viz draws it. It is a pickle file: written here, never read.
    """
    import torch

    torch.cuda.memory._record_memory_history(max_entries=MEMORY_ENTRIES, stacks="python")
    try:
        _rounds(session, rounds)
        torch.cuda.memory._dump_snapshot(str(file))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
