"""What the device says of itself while it works: memory, power, temperature, clock. Read ten times a second."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from explorer.engine.memory import held_bytes
from explorer.engine.nvml import (
    MEMORY_V2,
    PERMANENT_ERRORS,
    close_nvml,
    find_device,
    memory_by_process,
    open_nvml,
)
from explorer.engine.resident import resident_bytes
from explorer.results.environment import DeviceInfo
from explorer.results.sample import NAN

INTERVAL_S = 0.1
# How long close() waits for the reader: an NVML call may hang on a lost GPU, and the run must still end.
JOIN_S = 2.0
# nvml.h: NVML_TEMPERATURE_GPU and NVML_CLOCK_SM.
_TEMPERATURE_GPU = 0
_CLOCK_SM = 1
# cuda.h: CU_STREAM_CAPTURE_MODE_RELAXED.
_CAPTURE_RELAXED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at the device. Floats that it does not tell are NaN, whole numbers -1."""

    device_used_bytes: int = -1
    """In use on the whole device, by whomever, the driver's own reserve apart; on the CPU this process's memory."""
    process_used_bytes: int = -1
    """Of which by this process. NVML does not tell on WSL2, nor in containers that number processes anew."""
    context_bytes: int = -1
    """Of which beyond torch's allocator: CUDA's context, code, libraries' workspaces."""
    other_processes_bytes: int = -1
    """Of ``device_used_bytes`` by others; not told where this process cannot be told from them."""
    driver_reserved_bytes: int = -1
    """The driver's own reserve, which no process can use."""
    power_w: float = NAN
    """Averaged by the driver over about a second on most cards."""
    temperature_c: float = NAN
    sm_clock_mhz: float = NAN
    energy_mj: int = -1
    """Used since the driver was loaded, in millijoules."""
    throttle_reasons: int = -1
    """NVML's bit mask of what holds the clock down; one bit alone is no disturbance, a drop of the clock is."""
    time_s: float = NAN
    """By time.perf_counter()."""

    def sample_fields(self, *, since_s: float) -> Mapping[str, Any]:
        """What of it goes into a Sample.

        ``since_s``: when, by time.perf_counter(), the segment or block of the sample began. Energy read before that
        was used by something else.
        """
        return {
            "device_used_bytes": self.device_used_bytes,
            "context_bytes": self.context_bytes,
            "other_processes_bytes": self.other_processes_bytes,
            "driver_reserved_bytes": self.driver_reserved_bytes,
            "power_w": self.power_w,
            "temperature_c": self.temperature_c,
            "sm_clock_mhz": self.sm_clock_mhz,
            "energy_j": self.energy_mj / 1e3 if self.energy_mj >= 0 and self.time_s >= since_s else NAN,
            "read_at_s": self.time_s,
        }


Source = Callable[[], Mapping[str, float]]
"""Reads some fields of ``Reading`` in one moment."""


class Telemetry:
    """Keeps the latest ``Reading`` of ``device`` from a thread of its own, until ``close``.

    A field that cannot be read stays at "not told"; nothing here raises into the step.
    """

    def __init__(self, device: DeviceInfo, nvml: Any | None = None) -> None:
        """``nvml``: a module like pynvml; None: the installed one."""
        self.problem: str | None = None
        """Why power, temperature and clock are not read, or None where they are."""
        self._nvml: Any | None = None
        self._prepare: Callable[[], None] = _nothing
        self._sources = self._find_sources(device, nvml)
        self._stop = threading.Event()
        self._latest = self._read()
        self._thread = threading.Thread(target=self._loop, name="telemetry", daemon=True)
        self._thread.start()

    def latest(self) -> Reading:
        """The newest reading: one attribute, without a lock, never more than a few intervals old."""
        return self._latest

    def close(self) -> None:
        """End the thread and leave NVML. A second call does nothing."""
        self._stop.set()
        self._thread.join(JOIN_S)
        if self._nvml is not None and not self._thread.is_alive():
            close_nvml(self._nvml)
            self._nvml = None

    def _find_sources(self, device: DeviceInfo, nvml: Any | None) -> list[Source]:
        """What can be read on this device."""
        if device.kind == "cpu":
            self.problem = "the CPU is not read"
            return [_resident]
        opened, problem = open_nvml(nvml)
        if opened is not None:
            handle, problem = find_device(opened, device.uuid)
            if handle is not None:
                self._nvml = opened
                return _nvml_sources(opened, handle, device.id)
            close_nvml(opened)
        self.problem = problem
        self._prepare = _let_others_capture
        return [lambda: {"device_used_bytes": _used_by_torch(device.id)}]

    def _read(self) -> Reading:
        values: dict[str, Any] = {}
        for source in list(self._sources):
            try:
                values |= source()
            except _errors(self._nvml) as error:
                permanent = getattr(error, "value", None) in PERMANENT_ERRORS
                if permanent or isinstance(error, AttributeError):
                    self._sources.remove(source)
        return Reading(time_s=time.perf_counter(), **values)

    def _loop(self) -> None:
        self._prepare()
        while not self._stop.wait(INTERVAL_S):
            self._latest = self._read()


def _nothing() -> None:
    pass


def _errors(nvml: Any | None) -> tuple[type[BaseException], ...]:
    # AttributeError: a pynvml older than the function. OSError, ValueError: /proc is closed to us or unlike Linux's.
    # RuntimeError: torch's own, from a CUDA context that died.
    own = () if nvml is None else (nvml.NVMLError,)
    return (*own, AttributeError, OSError, RuntimeError, ValueError)


def _resident() -> Mapping[str, float]:
    resident = resident_bytes()
    return {"device_used_bytes": resident, "process_used_bytes": resident}


def _nvml_sources(nvml: Any, handle: Any, device_id: str) -> list[Source]:
    own_pid = os.getpid()

    def memory() -> Mapping[str, float]:
        told = nvml.nvmlDeviceGetMemoryInfo(handle, version=MEMORY_V2)
        return {"device_used_bytes": int(told.used), "driver_reserved_bytes": int(told.reserved)}

    def processes() -> Mapping[str, float]:
        held = held_bytes(device_id)
        used = memory_by_process(nvml, handle)
        own = used.pop(own_pid, None)
        if own is None:
            return {}
        told = {"process_used_bytes": own}
        # An allocator that grew meanwhile would make the context seem to grow.
        if held_bytes(device_id) == held:
            told["context_bytes"] = own - held
        others = [size for size in used.values() if size is not None]
        if len(others) == len(used):
            told["other_processes_bytes"] = sum(others)
        return told

    return [
        memory,
        processes,
        lambda: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1e3},
        lambda: {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU))},
        lambda: {"sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM))},
        lambda: {"energy_mj": int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))},
        lambda: {"throttle_reasons": int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))},
    ]


def _used_by_torch(device_id: str) -> int:
    import torch

    free, total = torch.cuda.mem_get_info(device_id)
    return total - free


def _let_others_capture() -> None:
    """Allow this thread CUDA calls while another one captures a graph.

    Under torch's default ("global") capture mode a call such as cudaMemGetInfo from any other thread may spoil the
    capture, unless that thread declares itself relaxed. Source: CUDA driver API, cuThreadExchangeStreamCaptureMode.
    """
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        exchange = ctypes.CDLL(library).cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return
    exchange(ctypes.byref(ctypes.c_int(_CAPTURE_RELAXED)))
