"""A training step recorded as one CUDA graph: forward, backward, clipping and optimizer by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from explorer.engine.parts import part
from explorer.engine.step_graph import WARM_UPS, aside
from explorer.optimizations.base import Run

Step = Callable[[Run, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class TrainingGraph:
    """``step`` of ``run``, with batches of one shape: some times launch by launch, then recorded and replayed.

    The first steps train as all do. They load kernels, compile what is to be compiled, and make the optimizer's
    state, none of which can be recorded. ``run``'s optimizer must be capturable, and nothing in a step may ask the
    host. Source: docs.pytorch.org/docs/stable/notes/cuda.html, whole-network capture.
    """

    def __init__(self, run: Run, step: Step) -> None:
        self._run = run
        self._step = step
        self._before = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tokens: torch.Tensor
        self._out: tuple[torch.Tensor, torch.Tensor]
        self.hidden_bytes = 0
        """Memory that the recording holds and that the allocator does not count as allocated."""

    def __call__(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One step on ``tokens`` (B, T); its loss and gradient norm, which the next call may overwrite."""
        if self._graph is None and self._before < WARM_UPS:
            self._before += 1
            with aside(), _no_cast_cache():
                return self._step(self._run, tokens)
        if self._graph is None:
            self._record(tokens)
        assert self._graph is not None
        with part("replay"):
            self._tokens.copy_(tokens)
            self._graph.replay()
        return self._out

    def _record(self, tokens: torch.Tensor) -> None:
        self._tokens = tokens.clone()
        assert self._run.optimizer is not None
        self._run.optimizer.zero_grad(set_to_none=True)  # the recorded step makes gradients in memory of its own
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        graph = torch.cuda.CUDAGraph()
        # Other threads (telemetry, a window's) may call CUDA meanwhile.
        with _no_cast_cache(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._out = self._step(self._run, self._tokens)
        grown = torch.cuda.memory_reserved() - reserved
        self.hidden_bytes = max(0, grown - (torch.cuda.memory_allocated() - allocated))
        self._graph = graph


@contextmanager
def _no_cast_cache() -> Iterator[None]:
    """Autocast casts a weight each time that it is used: one that it kept from before would not be in the recording."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
