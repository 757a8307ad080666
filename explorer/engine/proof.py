"""Profile one step of a session: what really ran.

Profile last, or in a process of its own (``proving.py``): CUPTI can stay attached afterwards and slow the process by
10 to 20% (pytorch issue 146604). torch.profiler must have run on the process's main thread before it runs on another.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from explorer.config import RunConfig, Workload
from explorer.engine.session import Session
from explorer.engine.trace import BLOCK_MARKER, read_profile
from explorer.engine.training import TrainingLoop
from explorer.optimizations.compiled import as_written
from explorer.results.proof import Profile
from explorer.results.scratch import Scratch

STEPS: dict[Workload, int] = {"train": 1, "generate": 5}
"""Forward passes in a profile: a training step, or a prefill and four tokens after it."""
WARM_UP_ROUNDS = 3
"""Each as long as a profile: kernels load and compile, autotuning and the allocator settle."""
TIMED_ROUNDS = 3
OF_OPERATORS = (
    "operators",
    "products",
    "widest_product",
    "attention_softmax",
    "norms",
    "residual_adds",
    "attention_dropout",
    "block_forwards",
)
"""Fields of a Profile that are read from operators and marks, not from kernels."""


def fitted(config: RunConfig) -> RunConfig:
    """``config`` as a session must have it for ``take_profile``: in generation, with as many tokens as that takes."""
    if config.workload == "train":
        return config
    return dataclasses.replace(config, max_new_tokens=STEPS["generate"])


def take_profile(session: Session) -> Profile:
    """Run ``session``, in which a segment has begun, for some rounds and return the last one's profile.

    The last two run under the profiler, which warms up in the first of them.
    Its configuration must be a ``fitted`` one. The session can go on afterwards; nothing is left in the model.
    """
    _rounds(session, WARM_UP_ROUNDS)
    round_ms = statistics.median(_rounds(session, TIMED_ROUNDS))
    found = _profile(session, round_ms)
    loop = session.loop
    replays, loop.replays = loop.replays, False
    try:
        if replays:
            # A graph's kernels come without the operators that launched them: these are read from the same work done
            # launch by launch.
            plain = _profile(session, round_ms)
            found = dataclasses.replace(found, **{name: getattr(plain, name) for name in OF_OPERATORS})
        with as_written(session.run.model) as compiled:
            if compiled:
                found = dataclasses.replace(found, as_written=_profile(session, round_ms))
    finally:
        loop.replays = replays
    return found


def _profile(session: Session, round_ms: float) -> Profile:
    """The profile of one round, which takes ``round_ms`` without the profiler."""
    run = session.run
    blocks: Any = run.model.transformer.h
    with _marked(blocks):
        events = traced(lambda: _rounds(session, 1), run.device)
    return read_profile(
        events,
        device=run.device.type,
        workload=run.config.workload,
        steps=STEPS[run.config.workload] * run.micro_batches,
        step_ms=round_ms,
        blocks=len(blocks),
        width=run.model.config.n_embd,
        vocabulary=run.model.config.vocab_size,
        own_kernels=own_kernels(),
        tf32_allowed=torch.backends.cuda.matmul.fp32_precision == "tf32",
        batch_bytes=8 * run.config.batch * run.config.seq if run.config.workload == "train" else 0,
    )


def traced(work: Callable[[], object], device: torch.device, *, keep: Path | None = None) -> list[Any]:
    """The profiler's trace of ``work``, which is done twice: the profiler warms up in the first.

    ``keep``: a file that it is left in, too.
    """
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    plan = schedule(wait=0, warmup=1, active=1, repeat=1)
    with profile(activities=activities, record_shapes=True, schedule=plan, acc_events=True) as recorded:
        work()
        recorded.step()
        work()
    with Scratch() as folder:
        file = keep or folder / "trace.json"
        recorded.export_chrome_trace(str(file))
        events: list[Any] = json.loads(file.read_text(errors="replace"))["traceEvents"]
        return events


def _rounds(session: Session, count: int) -> list[float]:
    """Do ``count`` times what a profile covers, wait until it is over, and return how long each took, in ms.

    Training steps follow one another without a wait, as they do in a run.
    """
    loop, steps = session.loop, STEPS[session.config.workload]
    if isinstance(loop, TrainingLoop):
        for _ in range(count):
            loop.step()
        return [sample.step_ms for sample in loop.collect(all_of_them=True)]
    times = []
    for _ in range(count):
        loop.begin_text()
        while loop.next_step < steps:
            loop.step()
        times.append(sum(sample.step_ms for sample in loop.collect(all_of_them=True)))
    return times


@contextmanager
def _marked(blocks: Any) -> Iterator[None]:
    """While entered, each block leaves a mark in the trace in its forward, where its attention ends in a projection.

    No later: checkpointing abandons a recomputed forward once it has what it needs, and it needs what follows this. Not
    at the block itself, whose forward a decoder of our own does not call, nor at a norm, which a block of our own does
    not.
    """

    def marking(index: int) -> Any:
        def mark(module: torch.nn.Module, args: Any) -> None:
            with record_function(f"{BLOCK_MARKER}{index}"):
                pass

        return mark

    handles = [block.attn.c_proj.register_forward_pre_hook(marking(index)) for index, block in enumerate(blocks)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def own_kernels() -> frozenset[str]:
    """Names, as a profile shows them, of this project's Triton kernels whose modules are loaded."""
    loaded = [module for name, module in sys.modules.items() if name.startswith("explorer.kernels.")]
    return frozenset(
        value.repr(None)
        for module in loaded
        for value in vars(module).values()
        # By its name: importing triton for its type would load it where nothing else has.
        if type(value).__name__ == "JITFunction"
    )
