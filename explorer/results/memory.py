"""The device's memory in bands, each measured; what they come to is held against what the device says of itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from explorer.results.environment import DeviceInfo
from explorer.results.ring import Columns

Bytes = NDArray[np.float64]
"""Sizes in bytes; NaN: not measured."""


def cached_bytes(columns: Columns) -> Bytes:
    """What torch's allocator held beyond the step's peak."""
    return _known(columns, "reserved_bytes") - _known(columns, "peak_allocated_bytes")


def unexplained_bytes(columns: Columns) -> Bytes:
    """Memory in use on the device without its bands: allocated, cached, context and other processes.

    The driver's reserve is in neither. Near zero where every band is right, negative where they are more than the
    whole.
    """
    bands = ("reserved_bytes", "context_bytes", "other_processes_bytes")
    return _known(columns, "device_used_bytes") - sum(_known(columns, name) for name in bands)


def bands_problem(device: DeviceInfo, *, told: bool) -> str | None:
    """Why there are no bands for the context and other processes on ``device``, or None where there are.

    ``told``: whether NVML told what this process holds.
    """
    if device.kind == "cpu":
        return "on the CPU only the worker's resident memory is measured"
    if device.nvml_problem is not None:
        return f"memory is not told apart by process: {device.nvml_problem}"
    if not told:
        return (
            "memory is not told apart by process: NVML does not say what this process holds, as on WSL2, on Windows "
            "and in containers that number processes anew"
        )
    return None


def _known(columns: Columns, name: str) -> Bytes:
    sizes = columns[name].astype(np.float64)
    return np.where(sizes >= 0, sizes, np.nan)
