"""The largest sum of live tensors within each step: the value between steps misses the activations."""

from __future__ import annotations

import torch

from explorer.engine.resident import resident_bytes


def held_bytes(device_id: str) -> int:
    """What torch's allocator holds of the CUDA device now, its cache included; 0 before it holds any."""
    # The nested form: memory_reserved() flattens and sorts some 200 counters at each call (torch 2.11 and 2.13).
    stats = torch.cuda.memory_stats_as_nested_dict(device_id)
    return int(stats["reserved_bytes"]["all"]["current"]) if stats else 0


class StepMemory:
    """Peak and held memory of ``device``, step by step: ``begin``, the step, ``read``.

    Both are counters that the allocator keeps on the host: neither waits for the device, nor for its kernels.
    Inside a CUDA graph the allocator is not asked, so there the peak reads low; what is reserved holds.
    """

    def __init__(self, device: torch.device) -> None:
        self._index: int | None = None
        if device.type == "cuda":
            torch.cuda.init()
            self._index = torch.cuda.current_device() if device.index is None else device.index
            # What torch.cuda.memory_stats and reset_peak_memory_stats come down to (torch 2.11 and 2.13). The first
            # flattens some 200 counters into a sorted dict at each call; these two lines read two.
            self._stats = torch._C._cuda_memoryStats
            self._reset_peak = torch._C._cuda_resetPeakMemoryStats

    def begin(self) -> None:
        """Start the step's peak at what is allocated now."""
        if self._index is not None:
            self._reset_peak(self._index)

    def read(self) -> tuple[int, int]:
        """(peak_allocated_bytes, reserved_bytes) since ``begin``.

        On the CPU both are this process's resident memory now: there is no cheap high-water mark within a step.
        """
        if self._index is None:
            resident = resident_bytes()
            return resident, resident
        stats = self._stats(self._index)
        return stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["current"]
