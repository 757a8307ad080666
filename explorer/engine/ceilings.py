"""What this device can do at best: a bf16 product of 8192^3 and a large copy, measured once and kept.

The product is cuBLAS's own, of random numbers (zeros draw less power and clock higher). Both are medians, so what the
device holds, not what it reaches once.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

import torch

from explorer.engine.kept_ceilings import keep
from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo

PRODUCT_SIZES = (8192, 4096, 2048)
"""The first that a device gets through often enough within ``PRODUCT_S`` is measured."""
PRODUCT_S = 0.5
COPY_S = 0.25
COPY_BYTES = 2**30
FEWEST_TIMES = 5
MOST_TIMES = 200


def measure(device: DeviceInfo) -> Ceilings:
    """Measure ``device``, in under 2 s once it is initialized. The caller's random state is left as it was.

    Raises:
        ValueError: it is a CPU: what that does depends on what else runs there.
        RuntimeError: too little memory is free, or the device fails.
    """
    if device.kind == "cpu":
        raise ValueError("no ceiling is measured on a CPU: what it does depends on what else runs there")
    with torch.cuda.device(torch.device(device.id)):
        try:
            dtype = torch.bfloat16 if device.bf16 else torch.float16
            size, product_ms = _product(dtype)
            copied_bytes, copy_ms = _copy()
        finally:
            torch.cuda.empty_cache()
    return Ceilings(
        product_tflop_per_s=2 * size**3 / product_ms / 1e9,
        product_size=size,
        product_dtype=str(dtype).removeprefix("torch."),
        copy_gb_per_s=2 * copied_bytes / copy_ms / 1e6,
        measured_at=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def measured(device: DeviceInfo, measure: Callable[[DeviceInfo], Ceilings] = measure) -> Ceilings:
    """``measure(device)``, kept for ``known`` where the cache folder can be written.

    Raises: as ``measure``.
    """
    found = measure(device)
    keep(device, found)
    return found


def _product(dtype: torch.dtype) -> tuple[int, float]:
    """(n, milliseconds) of an n x n x n product."""
    # The smallest first: it tells which one there is time for. Small ones fill a large device less well.
    ms = _product_ms(PRODUCT_SIZES[-1], dtype, most_s=0.05)
    for size in PRODUCT_SIZES[:-1]:
        expected_s = ms / 1e3 * (size / PRODUCT_SIZES[-1]) ** 3
        if 2 * FEWEST_TIMES * expected_s < PRODUCT_S:
            return size, _product_ms(size, dtype, most_s=PRODUCT_S)
    return PRODUCT_SIZES[-1], ms


def _product_ms(size: int, dtype: torch.dtype, *, most_s: float) -> float:
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(size, size, dtype=dtype, device="cuda", generator=generator) for _ in range(2))
    out = torch.empty_like(a)
    return _median_ms(lambda: torch.mm(a, b, out=out), most_s=most_s)


def _copy() -> tuple[int, float]:
    """(bytes, milliseconds) of a copy within the device."""
    free_bytes, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, free_bytes // 4)
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return size, _median_ms(lambda: target.copy_(source), most_s=COPY_S)


def _median_ms(work: Callable[[], object], *, most_s: float) -> float:
    """Median time of ``work``, by events, over about ``most_s`` seconds."""
    for _ in range(2):  # the first loads its kernel
        first_ms = _times_ms(work, 1)[0]
    times = int(max(FEWEST_TIMES, min(MOST_TIMES, most_s * 1e3 / max(first_ms, 1e-3))))
    return statistics.median(_times_ms(work, times))


def _times_ms(work: Callable[[], object], times: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    events[-1].synchronize()
    return [before.elapsed_time(after) for before, after in pairwise(events)]
