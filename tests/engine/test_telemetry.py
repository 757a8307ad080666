"""Telemetry over a stand-in for NVML, which is the world outside: unsupported fields, failures, a driver that goes."""

import math
import mmap
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fake_nvml import DRIVER_NOT_LOADED, GPU_IS_LOST, NOT_SUPPORTED, UUID, Nvml

from explorer.engine.resident import resident_bytes
from explorer.engine.telemetry import INTERVAL_S, Reading, Telemetry
from explorer.results.environment import DeviceInfo

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, uuid=UUID)
CPU = DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC", total_memory_bytes=2**34)


def held(size):
    """What torch tells of an allocator that holds ``size`` bytes."""
    return {"reserved_bytes": {"all": {"current": size}}}


@pytest.fixture
def start(monkeypatch):
    """Starts telemetry; whatever a test started is closed after it. torch holds 4400 bytes where it has no GPU."""
    started = []
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: held(4_400))

    def begin(device, nvml=None):
        started.append(Telemetry(device, nvml))
        return started[-1]

    yield begin
    for telemetry in started:
        telemetry.close()
    assert all(thread.name != "telemetry" for thread in threading.enumerate())


def later(telemetry, condition, timeout_s=5.0):
    """The first reading from the thread that fulfils ``condition``."""
    before, deadline = telemetry.latest(), time.monotonic() + timeout_s
    never = threading.Event()
    while time.monotonic() < deadline:
        reading = telemetry.latest()
        if reading is not before and condition(reading):
            return reading
        never.wait(INTERVAL_S / 10)
    raise AssertionError(f"no such reading came; the last is {telemetry.latest()}")


def without_time(reading):
    """All fields but the time, as text, so that NaN equals NaN."""
    return [f"{name}={getattr(reading, name)}" for name in Reading.__slots__ if name != "time_s"]


FULL = Reading(
    device_used_bytes=7_200,
    process_used_bytes=5_000,
    context_bytes=5_000 - 4_400,
    other_processes_bytes=2_150,
    driver_reserved_bytes=600,
    power_w=540.5,
    temperature_c=61.0,
    sm_clock_mhz=1980.0,
    energy_mj=123_456,
    throttle_reasons=4,
)


def test_that_every_field_is_read_in_its_unit_at_once_and_from_the_thread(start):
    telemetry = start(GPU, Nvml())
    assert telemetry.problem is None
    assert without_time(telemetry.latest()) == without_time(FULL)
    first = telemetry.latest().time_s
    assert without_time(later(telemetry, lambda reading: reading.time_s > first)) == without_time(FULL)


@pytest.mark.parametrize(
    ("torch_says", "nvml_says"),
    [(UUID, f"GPU-{UUID}"), (UUID, f"MIG-{UUID}"), (f"GPU-{UUID}", f"GPU-{UUID}"), (f"MIG-{UUID}", f"MIG-{UUID}")],
)
def test_that_the_device_is_found_by_its_uuid_whole_or_slice(start, torch_says, nvml_says):
    device = DeviceInfo(id="cuda:1", kind="cuda", name="GPU", total_memory_bytes=1, uuid=torch_says)
    assert start(device, Nvml(uuid=nvml_says)).latest().temperature_c == 61.0


def test_that_a_field_which_is_not_supported_is_not_told_nor_asked_again(start):
    nvml = Nvml(nvmlDeviceGetPowerUsage=NOT_SUPPORTED)
    telemetry = start(GPU, nvml)
    reading = later(telemetry, lambda reading: True)
    assert math.isnan(reading.power_w)
    assert (reading.temperature_c, reading.device_used_bytes) == (61.0, 7_200)
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1


def test_that_a_function_which_this_pynvml_lacks_leaves_the_others(start, monkeypatch):
    monkeypatch.delattr(Nvml, "nvmlDeviceGetTotalEnergyConsumption")
    reading = start(GPU, Nvml()).latest()
    assert (reading.energy_mj, reading.power_w) == (-1, 540.5)


@pytest.mark.parametrize("processes", [[], [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)]])
def test_that_no_memory_is_told_apart_where_nvml_hides_which_is_ours(start, monkeypatch, processes):
    monkeypatch.setattr(Nvml, "nvmlDeviceGetComputeRunningProcesses", lambda self, handle: processes)
    reading = start(GPU, Nvml()).latest()
    told = (reading.process_used_bytes, reading.context_bytes, reading.other_processes_bytes)
    assert told == (-1, -1, -1)
    assert (reading.device_used_bytes, reading.driver_reserved_bytes) == (7_200, 600)


def test_that_others_are_not_told_where_one_of_them_hides_what_it_holds(start, monkeypatch):
    hidden = [SimpleNamespace(pid=77, usedGpuMemory=None)]
    monkeypatch.setattr(Nvml, "nvmlDeviceGetGraphicsRunningProcesses", lambda self, handle: hidden)
    reading = start(GPU, Nvml()).latest()
    assert (reading.context_bytes, reading.other_processes_bytes) == (600, -1)


def test_that_the_context_is_not_told_while_the_allocator_grows(start, monkeypatch):
    sizes = iter(range(0, 10_000, 100))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: held(next(sizes)))
    reading = start(GPU, Nvml()).latest()
    assert (reading.context_bytes, reading.process_used_bytes, reading.other_processes_bytes) == (-1, 5_000, 2_150)


def test_that_a_device_which_cannot_draw_is_told_by_its_compute_processes(start):
    reading = start(GPU, Nvml(nvmlDeviceGetGraphicsRunningProcesses=NOT_SUPPORTED)).latest()
    assert (reading.process_used_bytes, reading.other_processes_bytes) == (5_000, 2_000)


def test_that_a_sample_takes_no_energy_from_before_it():
    reading = Reading(energy_mj=1_500, time_s=10.0, device_used_bytes=7, context_bytes=5)
    fields = reading.sample_fields(since_s=10.0)
    assert (fields["energy_j"], fields["read_at_s"], fields["context_bytes"]) == (1.5, 10.0, 5)
    assert math.isnan(reading.sample_fields(since_s=10.1)["energy_j"])
    assert math.isnan(Reading(time_s=10.0).sample_fields(since_s=0.0)["energy_j"])


def test_that_what_fails_amid_a_run_is_not_told_until_it_answers_again(start):
    nvml = Nvml()
    telemetry = start(GPU, nvml)
    nvml.broken = {name: GPU_IS_LOST for name in dir(Nvml) if name.startswith("nvmlDeviceGet")}
    lost = later(telemetry, lambda reading: math.isnan(reading.power_w) and reading.energy_mj == -1)
    assert without_time(lost) == without_time(Reading())
    nvml.broken = {}
    assert without_time(later(telemetry, lambda reading: reading.energy_mj != -1 and reading.power_w > 0))


def test_that_a_driver_unloaded_amid_a_run_does_not_disturb_the_end(start):
    nvml = Nvml()
    telemetry = start(GPU, nvml)
    nvml.broken = {name: DRIVER_NOT_LOADED for name in dir(Nvml) if name.startswith("nvml")}
    telemetry.close()
    assert nvml.calls.count("nvmlShutdown") == 1


def test_that_closing_ends_the_thread_and_leaves_nvml_once(start):
    nvml = Nvml()
    telemetry = start(GPU, nvml)
    assert nvml.opened == 1
    assert [thread.name for thread in threading.enumerate()].count("telemetry") == 1
    telemetry.close()
    telemetry.close()
    assert nvml.opened == 0
    assert all(thread.name != "telemetry" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("nvml", "opened", "words"),
    [
        (Nvml(nvmlInit=DRIVER_NOT_LOADED), 0, "did not open (NVML error 9)"),
        (Nvml(uuid="GPU-of-somebody-else"), 0, "does not find the device"),
    ],
)
def test_that_without_nvml_torch_is_asked_for_memory_and_the_reason_is_kept(start, monkeypatch, nvml, opened, words):
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (300, 1_000))
    telemetry = start(GPU, nvml)
    assert without_time(telemetry.latest()) == without_time(Reading(device_used_bytes=700))
    assert asked[0] == "cuda:0"
    assert words in telemetry.problem
    assert nvml.opened == opened


def test_that_a_cuda_context_that_died_does_not_end_the_thread(start, monkeypatch):
    def dead(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", dead)
    telemetry = start(GPU, Nvml(nvmlInit=DRIVER_NOT_LOADED))
    assert later(telemetry, lambda reading: True).device_used_bytes == -1


def test_that_on_the_cpu_the_resident_memory_of_this_process_is_read(start):
    before = start(CPU).latest()
    # Mapped anew: what an allocator hands out may have been freed, and resident, before.
    held = np.frombuffer(mmap.mmap(-1, 2**26), dtype=np.uint8)
    held.fill(1)
    reading = start(CPU).latest()
    assert reading.device_used_bytes == reading.process_used_bytes
    # The buffer's 64 MiB, within 8 MiB of what else the interpreter does meanwhile.
    assert abs(reading.device_used_bytes - before.device_used_bytes - held.nbytes) < 2**23
    assert math.isnan(reading.power_w)


def test_that_resident_memory_is_what_the_system_counts():
    with open("/proc/self/status") as status:
        kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    # Two looks at a running process, and the kernel folds its counters per thread now and then.
    assert abs(resident_bytes() - kib * 1024) < 2**22


OTHER = """
import sys, torch
torch.ones(1, device="cuda")  # makes the context, some hundred MB that differ from process to process
torch.cuda.empty_cache()
print("ready", flush=True)
sys.stdin.readline()
held = torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(torch.cuda.memory_reserved(), flush=True)
sys.stdin.read()
"""


@pytest.mark.gpu
@pytest.mark.alone
def test_that_a_second_process_and_our_own_bands_add_up_to_what_is_used(start):
    from explorer.engine.device import environment

    device = environment().device("cuda")
    held_here = torch.ones(2**28, device=device.id)  # 1 GiB in float32
    telemetry = start(device)
    alone = later(telemetry, lambda reading: reading.context_bytes > 0)
    with subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"ready\n"
        before = later(telemetry, lambda r: r.other_processes_bytes > alone.other_processes_bytes, 20.0)
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert int(other.stdout.readline()) == 3 * 2**30
        after = later(telemetry, lambda r: r.other_processes_bytes - before.other_processes_bytes > 2**30, 20.0)
        theirs = after.other_processes_bytes - before.other_processes_bytes
        assert theirs == pytest.approx(3 * 2**30, rel=0.02)
        bands = torch.cuda.memory_reserved() + after.context_bytes + after.other_processes_bytes
        assert bands == pytest.approx(after.device_used_bytes, rel=0.02)
        assert torch.cuda.memory_reserved() >= held_here.nbytes
        assert after.driver_reserved_bytes > 0


@pytest.mark.gpu
@pytest.mark.alone
def test_that_nvml_tells_what_this_gpu_does(start):
    from explorer.engine.device import environment

    device = environment().device("cuda")
    torch.cuda.empty_cache()  # what another test left there would be taken first
    telemetry = start(device)
    assert telemetry.problem is None
    before = telemetry.latest()
    held = torch.ones(2**28, device=device.id)  # 1 GiB in float32
    torch.cuda.synchronize()
    after = later(telemetry, lambda reading: reading.device_used_bytes - before.device_used_bytes >= 2**30)
    assert after.process_used_bytes == -1 or after.process_used_bytes >= held.nbytes
    assert 5 < after.power_w < 2_000
    assert 5 < after.temperature_c < 110
    assert 100 < after.sm_clock_mhz < 4_000
    assert after.energy_mj >= before.energy_mj


@pytest.mark.gpu
def test_that_reading_memory_through_torch_leaves_a_graph_capture_alone(start):
    device = DeviceInfo(id="cuda:0", kind="cuda", name="GPU", total_memory_bytes=1, uuid=UUID)
    telemetry = start(device, Nvml(nvmlInit=DRIVER_NOT_LOADED))
    x = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    graph, readings = torch.cuda.CUDAGraph(), set()
    with torch.cuda.graph(graph):
        y = x
        while len(readings) < 4:
            y = y + 1
            readings.add(later(telemetry, lambda reading: True).time_s)
    graph.replay()
    torch.cuda.synchronize()
    assert y[0].item() == 1 + 4
    assert telemetry.latest().device_used_bytes > 0
