"""NVML, NVIDIA's management library, opened where it is there and explained where it is not."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

# Error numbers after which asking again is no use: not supported, no permission, function not found.
# Source: nvml.h, nvmlReturn_t.
PERMANENT_ERRORS = (3, 4, 13)
# nvml.h: nvmlMemory_v2, which counts the driver's own reserve apart from what is used (615 MiB on an idle H200).
MEMORY_V2 = 0x02000028


def open_nvml(nvml: Any | None = None) -> tuple[Any | None, str | None]:
    """Open NVML through ``nvml`` (a module like pynvml; None: the installed one).

    Returns the module, to be left by its ``nvmlShutdown``, or None; and why it is not there, or None.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except (ImportError, OSError) as error:
            return None, f"the Python package nvidia-ml-py cannot be imported ({error})"
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError) as error:
        return None, f"NVML did not open ({error})"
    return nvml, None


def close_nvml(nvml: Any) -> None:
    """Leave NVML; a driver that has gone in the meantime is no error."""
    try:
        nvml.nvmlShutdown()
    except (nvml.NVMLError, OSError):
        return


def memory_by_process(nvml: Any, handle: Any) -> dict[int, int | None]:
    """Bytes of the device that each process holds, by its number; None where NVML does not tell (WSL2, Windows).

    Raises:
        nvml.NVMLError: processes are not told at all.
    """
    processes = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    with contextlib.suppress(nvml.NVMLError, AttributeError):  # what cannot draw says that it does not support this
        processes += nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    # A process that computes and draws is in both lists, with all that it holds.
    return {int(p.pid): None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in processes}


def find_device(nvml: Any, uuid: str | None) -> tuple[Any | None, str | None]:
    """NVML's handle of the device that torch calls by ``uuid``, or None; and why there is none, or None.

    torch and NVML number devices differently (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER), hence the UUID. torch
    writes it without the prefix that tells a whole GPU from a slice of one (MIG).
    """
    if uuid is None:
        return None, "torch does not tell the device's UUID"
    names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    problem = None
    for name in names:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(name.encode()), None
        except (nvml.NVMLError, OSError) as error:
            # The first one counts: asking for a slice fails in its own way where there are none.
            problem = problem or f"NVML does not find the device {uuid} ({error})"
    return None, problem
