"""What is seen of the machine before a run that bears on its numbers: said, never a reason not to run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any

from explorer.engine.nvml import close_nvml, find_device, memory_by_process, open_nvml
from explorer.results.environment import DeviceInfo

NEAR_LIMIT_C = 10
NAMED_PROCESSES = 3
"""So many are named, the largest; the others are counted."""
POWER_SUPPLIES = Path("/sys/class/power_supply")
"""Where Linux tells of mains and batteries."""

# nvml.h: NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_CLOCK_SM.
_TEMPERATURE_GPU = 0
_SLOWDOWN = 1
_CLOCK_SM = 1
# nvml.h, nvmlClocksEventReason…: those that are set in no undisturbed moment. Software's power cap is set in normal
# running, and idleness before a run.
_HELD_DOWN = {0x8: "hardware slowdown", 0x20: "too hot", 0x40: "far too hot", 0x80: "power brake"}


def preflight(device: DeviceInfo, nvml: Any | None = None) -> list[str]:
    """A line each on what disturbs measurements on ``device`` now; empty where nothing does. Never raises.

    Args:
        device: where the run will be.
        nvml: a module like pynvml; None: the installed one.
    """
    lines = [_battery()]
    if device.kind == "cuda":
        opened, _ = open_nvml(nvml)
        if opened is not None:
            handle, _ = find_device(opened, device.uuid)
            if handle is not None:
                checks: tuple[Callable[[Any, Any], str | None], ...] = (_others, _power_cap, _temperature, _clocks)
                for check in checks:
                    # What this card or driver does not tell is not remarked on. AttributeError: an older pynvml.
                    with contextlib.suppress(opened.NVMLError, AttributeError, OSError):
                        lines.append(check(opened, handle))
            close_nvml(opened)
    return [line for line in lines if line is not None]


def _others(nvml: Any, handle: Any) -> str | None:
    used = memory_by_process(nvml, handle)
    if used.pop(os.getpid(), None) is None and _has_context():
        return None  # ours is among them under another number: which one is not to be told
    if not used:
        return None
    largest = sorted(used.items(), key=lambda item: -(item[1] or 0))
    named = [f"{_name(nvml, pid)} (pid {pid}{_size(size)})" for pid, size in largest[:NAMED_PROCESSES]]
    if len(largest) > NAMED_PROCESSES:
        named.append(f"{len(largest) - NAMED_PROCESSES} more")
    return f"others use this GPU: {', '.join(named)}"


def _has_context() -> bool:
    """Whether this process may hold memory on a GPU already."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _name(nvml: Any, pid: int) -> str:
    path = ""
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        told = nvml.nvmlSystemGetProcessName(pid)
        path = told.decode(errors="replace") if isinstance(told, bytes) else told
    if not path:
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return PureWindowsPath(path).name or "a process"  # takes both kinds of slashes


def _size(size: int | None) -> str:
    return "" if size is None else f", {size / 2**20:,.0f} MiB"


def _power_cap(nvml: Any, handle: Any) -> str | None:
    cap_w = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    usual_w = nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3
    return f"power is capped at {cap_w:.0f} W, below the usual {usual_w:.0f} W" if cap_w < usual_w else None


def _temperature(nvml: Any, handle: Any) -> str | None:
    limit_c = nvml.nvmlDeviceGetTemperatureThreshold(handle, _SLOWDOWN)
    now_c = nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)
    if limit_c <= 0 or now_c < limit_c - NEAR_LIMIT_C:
        return None
    return f"the GPU has {now_c} °C already, and slows down at {limit_c} °C"


def _clocks(nvml: Any, handle: Any) -> str | None:
    # The clock itself is low while nothing runs.
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    held = [words for bit, words in _HELD_DOWN.items() if reasons & bit]
    if held:
        return f"the clock is held down: {', '.join(held)}"
    asked_mhz = nvml.nvmlDeviceGetApplicationsClock(handle, _CLOCK_SM)
    usual_mhz = nvml.nvmlDeviceGetDefaultApplicationsClock(handle, _CLOCK_SM)
    return f"the clock is set to {asked_mhz} MHz, below the usual {usual_mhz} MHz" if asked_mhz < usual_mhz else None


def _battery() -> str | None:
    on_battery = _on_battery_windows() if sys.platform == "win32" else _on_battery_linux()
    return "this machine runs on its battery, which may lower every clock" if on_battery else None


def _on_battery_linux() -> bool:
    """Whether a battery of the machine itself (not of a mouse) is being drawn on.

    Source: the kernel's Documentation/ABI/testing/sysfs-class-power.
    """

    def read(folder: Path, name: str) -> str:
        with contextlib.suppress(OSError):
            return (folder / name).read_text(errors="replace").strip()
        return ""

    with contextlib.suppress(OSError):
        return any(
            read(supply, "type") == "Battery"
            and read(supply, "scope") != "Device"
            and read(supply, "status") == "Discharging"
            for supply in POWER_SUPPLIES.iterdir()
        )
    return False


def _on_battery_windows() -> bool:
    """Source: GetSystemPowerStatus in winbase.h: its first byte is 0 without mains."""
    status = (ctypes.c_ubyte * 12)()
    windll: Any = getattr(ctypes, "windll", None)
    return bool(windll is not None and windll.kernel32.GetSystemPowerStatus(ctypes.byref(status)) and status[0] == 0)
