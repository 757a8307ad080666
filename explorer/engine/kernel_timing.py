"""How long an operation takes on a device by itself, and what calling it costs the host.

On CUDA the call is recorded as a graph and replayed, so that no launch by the host is in the time, and before each
replay a buffer four times as large as the L2 cache is read, so that nothing of the operation is left in it. Read and
not written: what was written would still have to go to memory while the operation runs. What an event pair around a
replay adds (some 2 us) is in the copy that ceilings are made of, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from explorer.results.lab import Timing

GRAPH_MOST_MS = 5.0
"""Calls that take longer are timed as they are: launching them is hidden behind the device's work."""
HOST_CALLS = 20
WALL_STEPS = 10
PRODUCT_SIZE = {"cuda": 8192, "cpu": 512}
"""n of the n x n x n product whose speed is the ceiling of arithmetic; in float32 half of it."""

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Some repetitions of one call."""

    us: Sequence[float]
    timed_by: Timing

    @property
    def median_us(self) -> float:
        return statistics.median(self.us)

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, _, high = statistics.quantiles(self.us, n=4)
        return (high - low) / self.median_us


class Stopwatch:
    """Times calls on one device. To be used on one thread, within ``torch.cuda.stream(stopwatch.stream)`` on CUDA."""

    def __init__(self, device: torch.device, *, quick: bool) -> None:
        self._device = device
        self._most_ms = 60.0 if quick else 200.0
        """Of the repetitions of one call, as far as that allows for five."""
        self._most = 50 if quick else 200
        self._copies: dict[int, float] = {}
        self._products: dict[torch.dtype, float] = {}
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
            cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
            self._flushing = torch.zeros(max(cache_bytes, 2**22), dtype=torch.float32, device=device)

    def kernel(self, call: Call) -> Times:
        """The time of ``call`` on the device, without the host's. It must have run before."""
        if self._device.type == "cpu":
            return Times(us=self._by_the_host(call, self._most_ms), timed_by="host clock")
        first_us = statistics.median(self._by_events(call, 3))
        repetitions = int(min(self._most, max(5, self._most_ms * 1e3 / first_us)))
        if first_us > GRAPH_MOST_MS * 1e3:
            return Times(us=self._by_events(call, repetitions), timed_by="events")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            kept = call()  # its memory is the graph's
        self._by_events(graph.replay, 2)
        us = self._by_events(graph.replay, repetitions)
        del kept
        return Times(us=us, timed_by="graph")

    def wall(self, call: Call) -> Times:
        """The time of ``call`` among others like it, by the host's clock, with all that the host does."""
        self._synchronize()
        found: list[float] = []
        began = time.perf_counter()
        while len(found) < 5 or (time.perf_counter() - began < self._most_ms / 1e3 and len(found) < self._most):
            start = time.perf_counter()
            for _ in range(WALL_STEPS):
                call()
            self._synchronize()
            found.append((time.perf_counter() - start) / WALL_STEPS * 1e6)
        return Times(us=found, timed_by="wall")

    def host_us(self, call: Call) -> float:
        """What ``call`` costs the host while the device is not waited for; NaN on the CPU, where all is the host's."""
        if self._device.type == "cpu":
            return float("nan")
        self._synchronize()
        found = []
        for _ in range(HOST_CALLS):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
        self._synchronize()
        return statistics.median(found)

    def copy_gb_per_s(self, moved_bytes: float) -> float:
        """What the faster of two copies that read and write ``moved_bytes`` together does, timed as ``kernel`` does.

        One is CUDA's own, the other torch's kernel that inverts all bits: on an H200 CUDA's in a graph comes to 2.7 of
        4.2 TB/s at 200 MB. Each size is measured once.
        """
        words = max(1, int(moved_bytes) // 16)
        if words not in self._copies:
            source = torch.zeros(words, dtype=torch.int64, device=self._device)
            target = torch.empty_like(source)
            found = []
            for copy in (lambda: target.copy_(source), lambda: torch.bitwise_not(source, out=target)):
                copy()
                found.append(self.kernel(copy).median_us)
            self._copies[words] = 16 * words / min(found) / 1e3
        return self._copies[words]

    def product_tflop_per_s(self, dtype: torch.dtype) -> float:
        """What a large product of ``dtype`` does, float32 without TF32; measured once."""
        if dtype not in self._products:
            size = PRODUCT_SIZE[self._device.type] // (2 if dtype == torch.float32 else 1)
            if self._device.type == "cpu" and dtype != torch.float32:
                size = 256  # where the processor has no units for it, it is many times slower
            generator = torch.Generator(self._device).manual_seed(0)
            a, b = (torch.randn(size, size, dtype=dtype, device=self._device, generator=generator) for _ in range(2))
            out = a @ b
            self._products[dtype] = 2 * size**3 / self.kernel(lambda: torch.mm(a, b, out=out)).median_us / 1e6
        return self._products[dtype]

    def _by_events(self, call: Call, repetitions: int) -> list[float]:
        pairs = []
        for _ in range(repetitions):
            self._flushing.sum()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            call()
            after.record()
            pairs.append((before, after))
        self._synchronize()
        return [before.elapsed_time(after) * 1e3 for before, after in pairs]

    def _by_the_host(self, call: Call, most_ms: float) -> list[float]:
        found: list[float] = []
        began = time.perf_counter()
        while len(found) < 5 or (time.perf_counter() - began < most_ms / 1e3 and len(found) < self._most):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
        return found

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
