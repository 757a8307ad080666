"""What is said before a run, over a stand-in for NVML and a made-up /sys/class/power_supply."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import DRIVER_NOT_LOADED, NOT_SUPPORTED, UUID, Nvml

from explorer.engine import preflight as module
from explorer.engine.preflight import preflight
from explorer.results.environment import DeviceInfo

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, uuid=UUID)
CPU = DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC", total_memory_bytes=2**34)
MIB = 2**20


@pytest.fixture(autouse=True)
def supplies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "POWER_SUPPLIES", tmp_path)
    return tmp_path


def quiet(**broken: int) -> Nvml:
    """A GPU that nobody else uses."""
    nvml = Nvml(nvmlDeviceGetGraphicsRunningProcesses=NOT_SUPPORTED, **broken)
    nvml.compute = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=5_000)]
    return nvml


def test_that_an_undisturbed_machine_says_nothing():
    nvml = quiet()
    assert preflight(GPU, nvml) == []
    assert nvml.opened == 0
    assert preflight(CPU) == []


def test_that_other_processes_are_named_by_size_with_what_they_hold():
    nvml = Nvml()
    nvml.compute[0].usedGpuMemory = 3072 * MIB
    other = os.getpid() + 1
    nvml.nvmlDeviceGetGraphicsRunningProcesses = lambda handle: [SimpleNamespace(pid=1, usedGpuMemory=150 * MIB)]
    assert preflight(GPU, nvml) == [
        f"others use this GPU: python3.12 (pid {other}, 3,072 MiB), Xorg (pid 1, 150 MiB)",
    ]


def test_that_of_many_processes_the_largest_are_named_and_the_rest_counted():
    nvml = quiet(nvmlSystemGetProcessName=4)
    nvml.compute += [SimpleNamespace(pid=10**9 + i, usedGpuMemory=i * MIB) for i in range(1, 6)]
    (line,) = preflight(GPU, nvml)
    assert line == (
        "others use this GPU: a process (pid 1000000005, 5 MiB), a process (pid 1000000004, 4 MiB), "
        "a process (pid 1000000003, 3 MiB), 2 more"
    )


def test_that_a_process_that_hides_its_size_is_still_named():
    nvml = quiet()
    nvml.compute.append(SimpleNamespace(pid=77, usedGpuMemory=None))
    assert preflight(GPU, nvml) == ["others use this GPU: python3.12 (pid 77)"]


def test_that_a_lowered_power_cap_is_said():
    nvml = quiet()
    nvml.limit_mw = 400_000
    assert preflight(GPU, nvml) == ["power is capped at 400 W, below the usual 700 W"]


@pytest.mark.parametrize(("slowdown_c", "said"), [(71, True), (72, False), (0, False)])
def test_that_a_gpu_near_its_limit_is_said(slowdown_c: int, said: bool):
    nvml = quiet()
    nvml.slowdown_c = slowdown_c  # it has 61 degrees
    assert preflight(GPU, nvml) == ([f"the GPU has 61 °C already, and slows down at {slowdown_c} °C"] if said else [])


@pytest.mark.parametrize(
    ("reasons", "said"), [(0x4, []), (0x1, []), (0x48, ["the clock is held down: hardware slowdown, far too hot"])]
)
def test_that_a_clock_held_down_is_said_but_not_the_power_cap_of_normal_running(reasons: int, said: list[str]):
    nvml = quiet()
    nvml.reasons = reasons
    assert preflight(GPU, nvml) == said


def test_that_a_clock_set_lower_is_said():
    nvml = quiet()
    nvml.set_mhz = 1200
    assert preflight(GPU, nvml) == ["the clock is set to 1200 MHz, below the usual 1980 MHz"]


def test_that_what_a_card_does_not_tell_leaves_the_rest():
    broken = {name: NOT_SUPPORTED for name in dir(Nvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name}
    del broken["nvmlDeviceGetPowerManagementLimit"], broken["nvmlDeviceGetPowerManagementDefaultLimit"]
    nvml = Nvml(**broken)
    nvml.limit_mw = 1_000
    assert preflight(GPU, nvml) == ["power is capped at 1 W, below the usual 700 W"]
    assert preflight(GPU, Nvml(nvmlInit=DRIVER_NOT_LOADED)) == []
    assert preflight(GPU, Nvml(uuid="GPU-of-somebody-else")) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"AC": {"type": "Mains", "online": "0"}, "BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"AC": {"type": "Mains", "online": "1"}, "BAT0": {"type": "Battery", "status": "Charging"}}, False),
        ({"mouse": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, False),
        ({"BAT0": {"type": "Battery"}}, False),
    ],
)
def test_that_running_on_the_machines_battery_is_said(supplies: Path, files: dict[str, dict[str, str]], said: bool):
    for folder, contents in files.items():
        (supplies / folder).mkdir()
        for name, text in contents.items():
            (supplies / folder / name).write_text(text + "\n")
    assert bool(preflight(CPU)) is said
    assert all("battery" in line for line in preflight(CPU))


@pytest.mark.gpu
@pytest.mark.alone
def test_that_a_second_process_on_this_gpu_is_named():
    import subprocess
    import sys

    from explorer.engine.device import environment

    device = environment().device("cuda")
    hold = "import sys, torch; x = torch.ones(2**28, device='cuda'); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert any(f"pid {other.pid}, " in line for line in preflight(device))
