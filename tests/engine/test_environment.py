"""Looking at a machine: this one as it is, and child processes in which parts are missing or broken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import torch

from explorer.engine import gather
from explorer.engine.device import environment
from explorer.engine.gather import cudnn_version, wake_driver
from explorer.results.environment import DeviceInfo, Environment, Finding
from explorer.results.environment_text import describe, to_dict

ROOT = Path(__file__).parents[2]
SHOW = """
import json
from explorer.engine.device import environment
from explorer.results.environment_text import to_dict
print(json.dumps(to_dict(environment())))
"""
# A torch that was built for CUDA 13 above a driver that knows 11.4: it warns, has no device, and init raises.
OLD_DRIVER_TORCH = """
import types, warnings
__version__ = "2.11.0+cu130"
version = types.SimpleNamespace(cuda="13.0", hip=None)
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)."
def _is_available():
    warnings.warn("CUDA initialization: " + TOO_OLD)
    return False
def _init():
    raise RuntimeError(TOO_OLD)
cuda = types.SimpleNamespace(is_available=_is_available, init=_init, get_arch_list=list)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=_init))
"""


def seen_by_child(preamble, folder=None):
    """What a child process sees after ``preamble``; its warnings are errors, so that none may escape."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(folder or ""), str(ROOT)])))
    command = [sys.executable, "-W", "error", "-c", preamble + SHOW]
    child = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""
    return json.loads(child.stdout)


def test_that_this_machine_is_seen_as_torch_and_the_system_see_it():
    seen = environment()
    cpu = seen.devices[-1]
    assert len(seen.devices) == torch.cuda.device_count() + 1
    assert (cpu.id, cpu.kind) == ("cpu", "cpu")
    assert cpu.name
    assert (seen.torch, seen.cuda, seen.numpy) == (str(torch.__version__), torch.version.cuda, numpy.__version__)
    assert seen.python == ".".join(map(str, sys.version_info[:3]))
    if sys.platform == "linux":
        kib = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
        assert cpu.total_memory_bytes == int(kib.split()[1]) * 1024


def test_that_without_torch_triton_nvml_and_the_rest_a_cpu_and_the_reasons_remain():
    missing = ("torch", "triton", "pynvml", "transformers", "PySide6", "pyqtgraph", "datasets")
    seen = seen_by_child(
        "import importlib.metadata, sys\n"
        f"for name in {missing}: sys.modules[name] = None\n"
        "def version(name): raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.version = version\n"
    )
    assert [device["id"] for device in seen["devices"]] == ["cpu"]
    assert (seen["torch"], seen["triton"], seen["qt"]) == (None, None, None)
    problems = [finding["text"] for finding in seen["findings"] if finding["severity"] == "problem"]
    assert len(problems) == 2
    assert "torch is not installed" in problems[0]
    assert "transformers is not installed" in problems[1]


def test_that_a_driver_too_old_for_torch_is_told_and_not_warned_about(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(OLD_DRIVER_TORCH)
    pretend_driver = "from explorer.engine import gather\ngather._proc_driver = lambda: '470.10'\n"
    seen = seen_by_child(pretend_driver, tmp_path)
    assert (seen["torch"], seen["cuda"], seen["driver"]) == ("2.11.0+cu130", "13.0", "470.10")
    problem = next(finding["text"] for finding in seen["findings"] if finding["severity"] == "problem")
    assert "too old (found version 11040)" in problem


def test_that_a_torch_that_dies_on_import_is_told(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    seen = seen_by_child("", tmp_path)
    assert "libcudart.so.13" in seen["findings"][0]["text"]


def test_that_where_there_is_no_driver_or_no_such_call_none_is_woken(monkeypatch):
    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    for library in (missing, object):
        monkeypatch.setattr(gather, "_driver_library", library)
        wake_driver()


def test_that_cudnn_is_named_as_its_releases_are():
    # The first from cuDNN 9's scheme, the second from cuDNN 8's.
    assert cudnn_version(91002) == "9.10.2"
    assert cudnn_version(8907) == "8.9.7"


EXAMPLE = Environment(
    devices=(
        DeviceInfo(
            id="cuda:0",
            kind="cuda",
            name="NVIDIA H200",
            total_memory_bytes=140 * 2**30,
            capability=(9, 0),
            bf16=True,
            triton_problem="triton is not installed",
        ),
        DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC", total_memory_bytes=2**34, triton_problem="needs a GPU"),
    ),
    platform="Linux",
    python="3.12.3",
    explorer="0.1.0",
    torch="2.11.0+cu130",
    driver="580.95.05",
    findings=(Finding(severity="problem", text="triton is not installed."),),
)


def test_that_the_text_tells_devices_versions_and_judgement_in_one_column():
    lines = describe(EXAMPLE).splitlines()
    assert len({line.index(text) for line, text in ((lines[0], "NVIDIA H200"), (lines[-1], "triton is not"))}) == 1
    assert "capability 9.0, 140.0 GiB, bfloat16" in lines[0]
    assert lines[1].strip() == "no Triton kernels: triton is not installed"
    assert "needs a GPU" not in describe(EXAMPLE)
    assert [line.split()[-1] for line in lines if line.startswith(("driver", "torch", "triton "))] == [
        "580.95.05",
        "2.11.0+cu130",
        "none",
    ]
    assert lines[-1].startswith("problem")


def test_that_the_dict_survives_json_unchanged():
    values = to_dict(EXAMPLE)
    assert json.loads(json.dumps(values)) == values
    assert values["devices"][0]["capability"] == [9, 0]
    assert values["findings"] == [{"severity": "problem", "text": "triton is not installed."}]
