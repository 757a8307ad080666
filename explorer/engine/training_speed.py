"""How fast GPT-2 trains, side by side: our configurations, and nanoGPT's model from a folder of the user's.

Every arm takes the same batches of real text, clips at the same norm and updates with fused AdamW. Steps are timed by
events, one after another without a wait.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from explorer.config import RunConfig
from explorer.engine.proof import own_kernels, traced
from explorer.engine.session import Session
from explorer.engine.step_graph import WARM_UPS
from explorer.engine.trace import read_profile
from explorer.engine.training_graph import Step, TrainingGraph
from explorer.engine.turns import Turn
from explorer.optimizations.base import Run
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Profile

UNTIMED = 8
"""Steps before the first that counts: more than a recording needs to begin."""
assert UNTIMED > WARM_UPS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpeed:
    """Some steps of one arm, after warm-up."""

    tokens: int
    """A step's."""
    first_s: float
    """Seconds until the first step was over: loading left out, compiling not."""
    step_ms: tuple[float, ...]
    peak_reserved_bytes: int
    """The most that the allocator held, in the steps that count; recordings' pools included."""
    losses: tuple[float, ...]
    """Of the steps that count."""
    profile: Profile | None = None

    @property
    def step_ms_median(self) -> float:
        return statistics.median(self.step_ms)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.step_ms_median * 1e3


Advance = Callable[[Tensor], tuple[Tensor, Tensor]]


def of_ours(
    turn: Turn = nullcontext, *, config: RunConfig, device: DeviceInfo, steps: int, profiled: bool
) -> TrainingSpeed:
    """The speed of ``config``. What is timed runs within ``turn``.

    Raises:
        BadRequest: it cannot run here.
        torch.OutOfMemoryError: it does not fit.
    """
    with _session(config, device) as session:
        session.begin_segment(0)
        loop: Any = session.loop
        return _speed(session, loop.advance, steps, profiled, turn)


def of_nanogpt(
    turn: Turn = nullcontext,
    *,
    config: RunConfig,
    device: DeviceInfo,
    folder: Path,
    steps: int,
    graphed: bool,
    profiled: bool,
) -> TrainingSpeed:
    """The speed of the model in ``folder``/model.py, compiled, under bf16 autocast, with its own flash attention.

    What is timed runs within ``turn``.

    Raises:
        ValueError: there is no such file.
        torch.OutOfMemoryError: it does not fit.
    """
    check_nanogpt(folder)
    with _session(config, device) as session:
        try:
            step = _nanogpt_step(_module(folder / "model.py"), session, capturable=graphed)
            graph = TrainingGraph(session.run, step)
            advance: Advance = graph if graphed else lambda tokens: step(session.run, tokens)
            return _speed(session, advance, steps, profiled, turn)
        finally:
            torch._dynamo.reset()


def check_nanogpt(folder: Path) -> None:
    """See before other arms are measured whether nanoGPT's model is in ``folder``.

    Raises:
        ValueError: it is not.
    """
    if not (folder / "model.py").is_file():
        raise ValueError(f"{folder} holds no model.py: clone github.com/karpathy/nanoGPT there")


def _nanogpt_step(nanogpt: Any, session: Session, *, capturable: bool) -> Step:
    """A training step of nanoGPT's model, of the same shape as the one in ``session``, which makes room for it."""
    run, config = session.run, session.config
    model: Any = run.model
    model.to("cpu")
    shape = model.config
    torch.manual_seed(config.seed)
    gpt = nanogpt.GPT(
        nanogpt.GPTConfig(
            block_size=config.seq,
            vocab_size=50304,
            n_layer=shape.n_layer,
            n_head=shape.n_head,
            n_embd=shape.n_embd,
            dropout=0.0,
            bias=True,
        )
    ).to(run.device)
    optimizer = torch.optim.AdamW(
        gpt.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True, capturable=capturable
    )
    run.optimizer = optimizer
    compiled = torch.compile(gpt)

    def step(run: Run, tokens: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, loss = compiled(tokens, tokens.roll(-1, dims=1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(gpt.parameters(), config.grad_clip)
        optimizer.step()
        return loss.detach(), norm

    return step


def _session(config: RunConfig, device: DeviceInfo) -> Session:
    gc.collect()
    torch.cuda.empty_cache()
    return Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def _speed(session: Session, advance: Advance, steps: int, profiled: bool, turn: Turn) -> TrainingSpeed:
    batches = session.batches
    began = time.perf_counter()
    advance(batches.next()[0])
    torch.cuda.synchronize()
    first_s = time.perf_counter() - began
    for _ in range(UNTIMED):
        advance(batches.next()[0])
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what only the first steps took
    with turn():
        return _timed(session, advance, steps, profiled, first_s)


def _timed(session: Session, advance: Advance, steps: int, profiled: bool, first_s: float) -> TrainingSpeed:
    batches = session.batches
    for _ in range(2):
        advance(batches.next()[0])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    losses = []
    for end in events[1:]:
        loss, _ = advance(batches.next()[0])
        losses.append(loss.clone())  # a recording overwrites it
        end.record()
    torch.cuda.synchronize()
    step_ms = tuple(a.elapsed_time(b) for a, b in pairwise(events))
    peak = torch.cuda.max_memory_reserved()
    profile = None
    if profiled:

        def one() -> None:
            advance(batches.next()[0])
            torch.cuda.synchronize()

        recorded = traced(one, torch.device("cuda"))
        profile = read_profile(
            recorded,
            device="cuda",
            workload="train",
            steps=1,
            step_ms=statistics.median(step_ms),
            blocks=0,
            own_kernels=own_kernels(),
            width=session.run.model.config.n_embd,
            vocabulary=session.run.model.config.vocab_size,
            tf32_allowed=False,
        )
    return TrainingSpeed(
        tokens=session.config.batch * session.config.seq,
        first_s=first_s,
        step_ms=step_ms,
        peak_reserved_bytes=peak,
        losses=tuple(torch.stack(losses).tolist()),
        profile=profile,
    )
