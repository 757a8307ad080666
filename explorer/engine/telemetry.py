"""What the device says of itself while it works: memory, power, temperature, clock. Read ten times a second."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explorer.engine.nvml import MEMORY_V2, PERMANENT_ERRORS, close_nvml, find_device, open_nvml
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
    """Of which by this process. NVML does not tell on WSL2 and in some containers."""
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
        self._fields = self._sources(device, nvml)
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

    def _sources(self, device: DeviceInfo, nvml: Any | None) -> dict[str, Callable[[], float]]:
        """By field of ``Reading``, what reads it on this device."""
        if device.kind == "cpu":
            self.problem = "the CPU is not read"
            return {"device_used_bytes": resident_bytes, "process_used_bytes": resident_bytes}
        opened, problem = open_nvml(nvml)
        if opened is not None:
            handle, problem = find_device(opened, device.uuid)
            if handle is not None:
                self._nvml = opened
                return _nvml_fields(opened, handle)
            close_nvml(opened)
        self.problem = problem
        self._prepare = _let_others_capture
        return {"device_used_bytes": lambda: _used_by_torch(device.id)}

    def _read(self) -> Reading:
        values: dict[str, Any] = {}
        for name, read in list(self._fields.items()):
            try:
                values[name] = read()
            except _errors(self._nvml) as error:
                permanent = getattr(error, "value", None) in PERMANENT_ERRORS
                if permanent or isinstance(error, AttributeError):
                    del self._fields[name]
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


def _nvml_fields(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    own_pid = os.getpid()

    def process_used() -> int:
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == own_pid and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return -1

    return {
        "device_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle, version=MEMORY_V2).used),
        "process_used_bytes": process_used,
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)),
        "sm_clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
        "energy_mj": lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
        "throttle_reasons": lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }


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
