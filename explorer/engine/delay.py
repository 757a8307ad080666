"""A delay of known length on purpose: whether a comparison finds it tells whether the comparison is to be trusted."""

from __future__ import annotations

import time

import torch

CALIBRATION_CYCLES = 20_000_000
"""Some 10 ms at a GPU's usual clock."""


class Delay:
    """Called before each step, makes it ``ms`` longer, whether the host or the device is what a step waits for."""

    def __init__(self, device: torch.device, ms: float) -> None:
        self._s = ms / 1e3
        self._cycles = 0
        if device.type == "cuda":
            _slept_ms()  # the kernel loads
            self._cycles = round(ms * CALIBRATION_CYCLES / _slept_ms())

    def __call__(self) -> None:
        if self._cycles:
            torch.cuda._sleep(self._cycles)
        # Beside the device, not before it: a step that waits for the device hides this, one that waits for the host
        # hides the other.
        until = time.perf_counter() + self._s
        while time.perf_counter() < until:
            pass


def _slept_ms() -> float:
    """How long ``CALIBRATION_CYCLES`` take on the current device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(CALIBRATION_CYCLES)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)
