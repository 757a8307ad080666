"""A stand-in for NVML, which is the world outside: it answers as pynvml does."""

import os
from types import SimpleNamespace

UUID = "5c8f4c1e-0000-1111-2222-333344445555"
NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST, NOT_FOUND = 3, 9, 15, 6


class Error(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value


class Nvml:
    """Answers as pynvml does. ``broken``: by function's name, the error number that it raises."""

    NVMLError = Error

    def __init__(self, uuid=f"GPU-{UUID}", **broken):
        self.uuid = uuid
        self.broken = broken
        self.opened = 0
        self.calls = []
        self.compute = [
            SimpleNamespace(pid=os.getpid() + 1, usedGpuMemory=2_000),
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=5_000),
        ]
        self.reasons = 4
        self.limit_mw = 700_000
        self.slowdown_c = 92
        self.set_mhz = 1980

    def _answer(self, name, value):
        self.calls.append(name)
        if name in self.broken:
            raise Error(self.broken[name])
        return value

    def nvmlInit(self):
        self._answer("nvmlInit", None)
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1
        self._answer("nvmlShutdown", None)

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid.decode() != self.uuid:
            raise Error(NOT_FOUND)
        return self._answer("nvmlDeviceGetHandleByUUID", "handle")

    def nvmlDeviceGetMemoryInfo(self, handle, version):
        assert (handle, version) == ("handle", 0x02000028)
        return self._answer("nvmlDeviceGetMemoryInfo", SimpleNamespace(used=7_200, free=1_000, reserved=600))

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self._answer("nvmlDeviceGetComputeRunningProcesses", self.compute)

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):
        # The other process draws too; a third one only draws.
        both = SimpleNamespace(pid=os.getpid() + 1, usedGpuMemory=2_000)
        desktop = SimpleNamespace(pid=1, usedGpuMemory=150)
        return self._answer("nvmlDeviceGetGraphicsRunningProcesses", [both, desktop])

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._answer("nvmlDeviceGetPowerUsage", 540_500)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        assert sensor == 0
        return self._answer("nvmlDeviceGetTemperature", 61)

    def nvmlDeviceGetClockInfo(self, handle, clock):
        assert clock == 1
        return self._answer("nvmlDeviceGetClockInfo", 1980)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self._answer("nvmlDeviceGetTotalEnergyConsumption", 123_456)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self._answer("nvmlDeviceGetCurrentClocksThrottleReasons", self.reasons)

    def nvmlSystemGetProcessName(self, pid):
        return self._answer("nvmlSystemGetProcessName", {1: b"/usr/lib/xorg/Xorg"}.get(pid, "/opt/py/bin/python3.12"))

    def nvmlDeviceGetPowerManagementLimit(self, handle):
        return self._answer("nvmlDeviceGetPowerManagementLimit", self.limit_mw)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle):
        return self._answer("nvmlDeviceGetPowerManagementDefaultLimit", 700_000)

    def nvmlDeviceGetTemperatureThreshold(self, handle, threshold):
        assert threshold == 1
        return self._answer("nvmlDeviceGetTemperatureThreshold", self.slowdown_c)

    def nvmlDeviceGetApplicationsClock(self, handle, clock):
        assert clock == 1
        return self._answer("nvmlDeviceGetApplicationsClock", self.set_mhz)

    def nvmlDeviceGetDefaultApplicationsClock(self, handle, clock):
        assert clock == 1
        return self._answer("nvmlDeviceGetDefaultApplicationsClock", 1980)
