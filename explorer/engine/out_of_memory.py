"""Too little memory, in words: what was asked for, what was free, the part that grew, and what would fit."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

import torch

from explorer.config import RunConfig
from explorer.messages import Problem
from explorer.models import ModelShape, shape_of
from explorer.optimizations.forecasting import largest_batch, memory_forecast, smallest_change
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import CONTEXT_BYTES

GIB = 2**30
_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
# Source: torch 2.11 to 2.13, c10/cuda/CUDACachingAllocator.cpp.
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free")
# Source: c10/core/impl/alloc_cpu.cpp: a RuntimeError of its own kind, not a MemoryError.
_HOST = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the device, or the machine, had too little memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # A library's allocation beside torch's allocator: cuBLAS' or cuDNN's handle, CUDA's context.
    text = str(error)
    return isinstance(error, RuntimeError) and (
        _HOST.search(text) is not None or "CUBLAS_STATUS_ALLOC_FAILED" in text or "CUDA error: out of memory" in text
    )


def describe_out_of_memory(
    error: BaseException, config: RunConfig, device: DeviceInfo | None, before: RunConfig | None
) -> Problem:
    """What to show for ``error`` in a run of ``config``; ``before``: what ran until then, in the same run."""
    host = device is None or device.kind == "cpu"
    size = (
        f"batch {config.batch} x {config.seq} tokens does not fit"
        if config.workload == "train"
        else f"batch {config.batch} does not fit"
    )
    why = [size, _asked(str(error), "this machine" if host else "the device")]
    half = max(1, config.batch // 2)
    fits = _Fits(words=f"Try batch {half} or a smaller model." if host else f"Try batch {half}.", batch=half)
    shape = shape_of(config.model) if config.workload == "train" else None
    if shape is not None:
        why.append(_part(config, before, shape))
        if device is not None and not host:
            fits = _what_fits(config, shape, device)
    return Problem(
        what="Out of memory",
        why=". ".join(filter(None, why)),
        remedy=fits.words,
        detail="".join(traceback.format_exception(error)),
        out_of_memory=True,
        flips=fits.flips,
        batch=fits.batch if fits.batch != config.batch else None,
    )


def _asked(text: str, where: str) -> str:
    """What was asked for and what was free, as far as the message tells."""
    asked, free, host = _ASKED.search(text), _FREE.search(text), _HOST.search(text)
    if host is not None:
        return f"{int(host[1]) / GIB:.2f} GiB were asked for at once, more than {where} gives"
    if asked is None:
        return ""
    said = f"{_gib(asked):.2f} GiB were asked for at once"
    return said if free is None else f"{said}, {_gib(free):.2f} were free on {where}"


def _gib(match: re.Match[str]) -> float:
    return float(match[1]) * _UNITS[match[2]] / GIB


def _part(config: RunConfig, before: RunConfig | None, shape: ModelShape) -> str:
    """The part of a step's memory that grew most since ``before``, or that is largest."""
    now = dict(memory_forecast(config, shape).parts())
    if before is not None and before.workload == "train":
        then = dict(memory_forecast(before, shape).parts())
        grew = max(now, key=lambda part: now[part] - then[part])
        if now[grew] > then[grew]:
            return f"{grew} grew from {then[grew] / GIB:.2f} to {now[grew] / GIB:.2f} GiB by the forecast"
    largest = max(now, key=lambda part: now[part])
    return f"{largest} take most, {now[largest] / GIB:.2f} of {sum(now.values()) / GIB:.2f} GiB by the forecast"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fits:
    """What would fit."""

    words: str
    batch: int | None
    flips: tuple[tuple[str, str], ...] = ()


def _what_fits(config: RunConfig, shape: ModelShape, device: DeviceInfo) -> _Fits:
    """What would fit into what this process can have of the device."""
    half = max(1, config.batch // 2)
    try:
        free_bytes, _ = torch.cuda.mem_get_info(device.id)
        ours_bytes = torch.cuda.memory_reserved(device.id) + CONTEXT_BYTES
    except RuntimeError:  # a device that answers no more is told of when the run has ended
        return _Fits(words=f"Try batch {half}.", batch=half)
    usable_bytes = free_bytes + ours_bytes
    fits = largest_batch(config, shape, usable_bytes)
    if fits >= config.batch:
        said = f"By the forecast it should fit into {usable_bytes / GIB:.1f} GiB; try batch {half}"
    else:
        said = f"The largest batch that fits is {fits}" if fits else "Not even batch 1 fits"
    batch = half if fits >= config.batch else fits or None
    change = smallest_change(config, shape, device)
    if change is None:
        return _Fits(words=f"{said}.", batch=batch)
    name, level, expected = change
    words = f"{said}; with {name}={level} this one takes {expected.needed_bytes / GIB:.1f} GiB."
    return _Fits(words=words, batch=batch, flips=((name, level),))
