"""What this process holds of memory, as text; and its cache given back: both asked for while a run goes, or between."""

from __future__ import annotations

import contextlib
import gc

import torch

from explorer.engine.aftermath import alive_tensors
from explorer.engine.resident import resident_bytes
from explorer.messages import Aside, CacheEmptied, EmptyCache, MemorySummary, SummarizeMemory

GIB = 2**30
LARGEST = 10
"""Tensors that are named."""


def answer(command: Aside) -> MemorySummary | CacheEmptied:
    """Do what ``command`` asks for, now. All that the device has to do for it is waited for."""
    match command:
        case SummarizeMemory():
            return _summary()
        case EmptyCache():
            return _emptied()


def _emptied() -> CacheEmptied:
    if not _in_use():
        return CacheEmptied(freed_bytes=0, held_bytes=0)
    gc.collect()  # tensors in cycles would keep their blocks
    before = _held_bytes()
    torch.cuda.empty_cache()
    return CacheEmptied(freed_bytes=before - _held_bytes(), held_bytes=_held_bytes())


def _summary() -> MemorySummary:
    resident = resident_bytes()
    lines = [] if resident < 0 else [f"The worker's process holds {resident / GIB:.2f} GiB of this machine's memory."]
    kind, tables = "cpu", []
    if _in_use():
        kind = "cuda"
        for index in range(torch.cuda.device_count()):
            held = torch.cuda.memory_reserved(index)
            if not held:
                continue
            name = torch.cuda.get_device_name(index)
            lines.append(f"torch's allocator holds {held / GIB:.2f} GiB of cuda:{index}, {name}.")
            with contextlib.suppress(RuntimeError):  # a device that answers no more
                free, total = torch.cuda.mem_get_info(index)
                lines.append(f"In use on the whole device: {(total - free) / GIB:.2f} of {total / GIB:.2f} GiB.")
            tables.append(torch.cuda.memory_summary(index))
        if not tables:
            lines.append("torch's allocator holds nothing of any CUDA device: no run is going.")
    else:
        lines.append("No CUDA device is in use, so there is no table of torch.cuda.memory_summary.")
        lines.append(
            "On the CPU torch asks the C library for each tensor and gives it back when it dies: it counts none and "
            "keeps no cache."
        )
    largest = alive_tensors(kind, LARGEST)
    lines.append("The largest tensors that Python holds:" if largest else "Python holds no tensor of a run.")
    return MemorySummary(lines=(*lines, *(f"  {words}" for words in largest)), tables=tuple(tables))


def _in_use() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _held_bytes() -> int:
    return sum(torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count()))
