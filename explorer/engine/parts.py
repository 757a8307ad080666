"""Names for the parts of a step, seen by whoever profiles it: torch's profiler, or NVIDIA's by NVTX ranges.

A part costs nothing but a call while nobody looks. Marks are the host's: within a CUDA graph that is replayed there
are none, and torch.compile and a capture see nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.profiler import record_function

from explorer.engine.step_trace import PART_MARKER

_Mark = Callable[[str], AbstractContextManager[Any]]
_UNSEEN = nullcontext()


def _unseen(name: str) -> AbstractContextManager[Any]:
    return _UNSEEN


_mark: _Mark = _unseen


def part(name: str) -> AbstractContextManager[Any]:
    """The part ``name`` of a step, as long as it is entered; parts may lie within each other."""
    return _mark(name)


@contextmanager
def parts_in_trace() -> Iterator[None]:
    """While entered, parts are in the trace of torch's profiler."""
    with _seen_by(lambda name: record_function(PART_MARKER + name)):
        yield


@contextmanager
def parts_for_nsight() -> Iterator[None]:
    """While entered, parts are NVTX ranges, which ``nsys profile -t nvtx`` records. Needs a CUDA build of torch."""
    with _seen_by(_nvtx_range):
        yield


@contextmanager
def _nvtx_range(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


@contextmanager
def _seen_by(mark: _Mark) -> Iterator[None]:
    global _mark
    before, _mark = _mark, mark
    try:
        yield
    finally:
        _mark = before
