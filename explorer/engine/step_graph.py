"""Work on the device recorded once as a CUDA graph, and then submitted by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

Pool = Any
"""Memory that graphs which never run at the same time share for what they compute on the way. torch's own type for it
has no public name."""

WARM_UPS = 3
"""Runs before the recording: kernels load and compile, libraries take their workspaces, caches are made."""


def new_pool() -> Pool:
    return torch.cuda.graph_pool_handle()


@cache
def side_stream(device_index: int) -> torch.cuda.Stream:
    """One for all: cuBLAS keeps a workspace for each stream that it has ever worked on, 64 MiB on Hopper."""
    return torch.cuda.Stream(device_index)


@contextmanager
def aside() -> Iterator[None]:
    """While entered, work goes to a stream beside, as a recording will have it; what comes after waits for it."""
    current, side = torch.cuda.current_stream(), side_stream(torch.cuda.current_device())
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


class StepGraph:
    """``replay`` submits what ``work`` submitted when this was made; ``work`` must not wait for the device.

    All that it reads and writes must stay where it is. It is run some times first; ``prepare`` is called before each
    time and at the end, to set things back.
    """

    def __init__(
        self,
        work: Callable[[], None],
        *,
        prepare: Callable[[], None],
        generator: torch.Generator,
        pool: Pool,
    ) -> None:
        """``generator``: what ``work`` draws from; replays go on with its numbers."""
        with aside():
            for _ in range(WARM_UPS):
                prepare()
                work()
            prepare()
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(generator)
        # Other threads (telemetry, a window's) may call CUDA meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        self._graph.replay()
