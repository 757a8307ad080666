"""The judgement on hand-made machines: each thing that does not fit is found, said and given a way out."""

from dataclasses import replace

import pytest

from explorer.engine.device import environment_of
from explorer.engine.facts import Facts, GpuFacts
from explorer.engine.judgement import findings

H200 = GpuFacts(
    index=0,
    name="NVIDIA H200",
    capability=(9, 0),
    total_memory_bytes=150_000_000_000,
    multiprocessors=132,
    uuid="5c8f4c1e-0000-1111-2222-333344445555",
    free_memory_bytes=149_000_000_000,
    others_memory_bytes=0,
)
VERSIONS = {
    "torch": "2.11.0+cu130",
    "transformers": "5.17.0",
    "tokenizers": "0.22.2",
    "triton": "3.6.0",
    "numpy": "2.4.6",
    "qt": "6.10.3",
    "pyqtgraph": "0.14.0",
    "datasets": "4.0.0",
}
FITS = Facts(
    platform="Linux-6.1",
    python="3.12.3",
    explorer="0.1.0",
    versions=VERSIONS,
    cuda="13.0",
    cudnn="9.19.0",
    architectures=("sm_75", "sm_80", "sm_90", "sm_100", "compute_120"),
    triton_pin="3.6.0",
    gpus=(H200,),
    driver="580.95.05",
    driver_cuda=(13, 0),
    cpu_name="AMD EPYC",
    cpu_memory_bytes=2**37,
)
NO_GPU = replace(FITS, gpus=(), driver=None, driver_cuda=None)


def only(facts, severity):
    """The one finding of this severity; there must be no other problem beside it."""
    found = findings(facts)
    texts = [finding.text for finding in found if finding.severity == severity]
    assert len(texts) == 1, found
    if severity == "note":
        assert [finding.severity for finding in found] == ["ok", "note"], found
    return texts[0]


def versions(**changed):
    return replace(FITS, versions=VERSIONS | changed)


def gpu(**changed):
    return replace(FITS, gpus=(replace(H200, **changed),))


def variables(facts=FITS, **values):
    return replace(facts, variables=values)


def test_that_a_machine_where_everything_fits_gets_one_ok_and_nothing_else():
    assert [finding.severity for finding in findings(FITS)] == ["ok"]
    assert [finding.severity for finding in findings(NO_GPU)] == ["ok"]


def test_that_problems_come_first_and_leave_no_ok():
    found = findings(replace(versions(transformers="5.24.0", datasets=None), c_compiler=False))
    assert [finding.severity for finding in found] == ["problem", "problem", "note"]


PROBLEMS = [
    pytest.param(
        replace(NO_GPU, torch_problem="No module named 'torch'", versions=VERSIONS | {"torch": None}, cuda=None),
        ["torch is not installed", "No module named 'torch'", "get-started"],
        id="no torch",
    ),
    pytest.param(
        replace(NO_GPU, torch_problem="libcudart.so.13: cannot open shared object file"),
        ["2.11.0+cu130 is installed but cannot be imported", "libcudart.so.13"],
        id="broken torch",
    ),
    pytest.param(
        replace(FITS, gpus=(), cuda=None, versions=VERSIONS | {"torch": "2.13.0+cpu"}, triton_pin=None),
        ["torch 2.13.0+cpu was built without CUDA", "580.95.05", "CUDA 13.0", "get-started"],
        id="CPU torch beside an NVIDIA driver",
    ),
    pytest.param(versions(torch="2.10.1"), ["torch 2.10.1 is older than 2.11"], id="old torch"),
    pytest.param(
        replace(FITS, gpus=(), driver="535.54.03", driver_cuda=(12, 2), cuda_problem="The NVIDIA driver is too old"),
        ["CUDA 13.0", "535.54.03", "12.2 at most", "580 or newer", "a torch for CUDA 12"],
        id="old driver",
    ),
    pytest.param(
        replace(FITS, gpus=(), cuda_problem="CUDA unknown error"),
        ["no usable GPU", "CUDA unknown error", "nvidia-smi"],
        id="CUDA does not start",
    ),
    pytest.param(
        variables(replace(FITS, gpus=(), cuda_problem="No CUDA GPUs are available"), CUDA_VISIBLE_DEVICES=""),
        ["CUDA_VISIBLE_DEVICES is ''", "Unset it"],
        id="GPU hidden",
    ),
    pytest.param(
        gpu(name="V100", capability=(7, 0)),
        ["V100 has compute capability 7.0", "sm_75"],
        id="architecture left out",
    ),
    pytest.param(versions(triton=None), ["pip install triton==3.6.0"], id="no triton"),
    pytest.param(versions(triton="3.7.1"), ["asks for triton 3.6.0", "3.7.1 is here"], id="other triton"),
    pytest.param(replace(FITS, c_compiler=False), ["NVIDIA H200", "C compiler", "gcc"], id="no compiler"),
    pytest.param(replace(FITS, python_headers=False), ["Python.h", "3.12.3"], id="no headers"),
    pytest.param(versions(transformers="5.16.9"), ["5.16.9", "'transformers>=5.17,<5.23'"], id="old transformers"),
    pytest.param(versions(transformers="5.23.0"), ["5.23.0", "'transformers>=5.17,<5.23'"], id="new transformers"),
    pytest.param(versions(transformers=None), ["transformers is not installed"], id="no transformers"),
    pytest.param(versions(qt="6.11.0"), ["PySide6 6.11.0", "pyqtgraph 0.14.0", "<6.11"], id="Qt 6.11"),
    pytest.param(versions(qt="6.12.0"), ["PySide6 6.12.0", "abort"], id="Qt 6.12"),
    pytest.param(versions(qt="6.8.1"), ["PySide6 6.8.1 is older"], id="old Qt"),
    pytest.param(variables(CUDA_LAUNCH_BLOCKING="1"), ["CUDA_LAUNCH_BLOCKING", "Unset it"], id="blocking"),
    pytest.param(variables(PYTORCH_NO_CUDA_MEMORY_CACHING="1"), ["peak memory", "Unset it"], id="no caching"),
    pytest.param(variables(TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="1"), ["TF32", "Unset it"], id="TF32 by torch"),
    pytest.param(variables(NVIDIA_TF32_OVERRIDE="0"), ["tf32 changes nothing"], id="TF32 forbidden"),
    pytest.param(variables(NVIDIA_TF32_OVERRIDE="1"), ["where fp32 is asked for"], id="TF32 forced"),
    pytest.param(variables(TRITON_INTERPRET="1"), ["TRITON_INTERPRET", "Unset it"], id="interpreter"),
]
NOTES = [
    pytest.param(replace(FITS, driver_cuda=(12, 4), cuda="12.8"), ["12.8", "12.4"], id="minor version"),
    pytest.param(replace(FITS, hip="7.1", cuda=None, driver="", gpus=(H200,)), ["ROCm 7.1"], id="ROCm"),
    pytest.param(gpu(name="T4", capability=(7, 5)), ["T4", "emulates bfloat16", "7.5", "fp16"], id="Turing"),
    pytest.param(gpu(display_attached=True), ["drives a screen"], id="display"),
    pytest.param(gpu(others_memory_bytes=3 * 2**30), ["3.0 GiB", "cuda:0", "nvidia-smi"], id="others"),
    pytest.param(gpu(free_memory_bytes=2**30), ["1.0 GiB is free"], id="little memory"),
    pytest.param(gpu(nvml_problem="NVML did not open (Driver Not Loaded)"), ["Driver Not Loaded"], id="no NVML"),
    pytest.param(replace(FITS, wsl=True), ["WSL2", "spill"], id="WSL2"),
    pytest.param(versions(datasets=None), ["wikitext-2", "pip install"], id="no datasets"),
    pytest.param(versions(qt=None), ["command line only", "PySide6"], id="no Qt"),
    pytest.param(
        replace(versions(triton=None), system="Windows", triton_pin=None), ["triton-windows"], id="triton on Windows"
    ),
    pytest.param(
        variables(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), ["expandable segments"], id="expandable"
    ),
    pytest.param(variables(PYTORCH_ALLOC_CONF="backend:cudaMallocAsync"), ["CUDA's own allocator"], id="async"),
    pytest.param(variables(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64"), ["max_split_size_mb:64"], id="split size"),
    pytest.param(variables(CUBLAS_WORKSPACE_CONFIG=":4096:8"), [":4096:8"], id="workspace"),
    pytest.param(variables(NO_GPU, TRITON_INTERPRET="1"), ["TRITON_INTERPRET"], id="interpreter without GPU"),
]


@pytest.mark.parametrize(("facts", "words"), PROBLEMS)
def test_that_what_does_not_fit_is_one_problem_with_its_remedy(facts, words):
    text = only(facts, "problem")
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(("facts", "words"), NOTES)
def test_that_what_limits_figures_is_one_note(facts, words):
    text = only(facts, "note")
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(replace(NO_GPU, driver_cuda=(13, 0), cuda=None), id="libcuda without a driver"),
        pytest.param(variables(CUDA_LAUNCH_BLOCKING="0", TRITON_INTERPRET="0"), id="variables that are off"),
        pytest.param(variables(NO_GPU, CUDA_LAUNCH_BLOCKING="1"), id="GPU variable without GPU"),
        pytest.param(replace(versions(triton="3.7.1"), triton_pin=None), id="torch that asks for no triton"),
        pytest.param(versions(transformers="unknown", qt="unknown"), id="versions without metadata"),
        pytest.param(gpu(capability=(8, 9)), id="a minor version above sm_80"),
        pytest.param(gpu(capability=(12, 1)), id="PTX of 12.0"),
        pytest.param(variables(CUDA_VISIBLE_DEVICES="0"), id="GPU chosen, and there"),
    ],
)
def test_that_what_fits_is_not_complained_of(facts):
    assert [finding.severity for finding in findings(facts)] == ["ok"]


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_80",), (9, 0), False),
        (("compute_80",), (9, 0), True),
        (("compute_90",), (8, 9), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_120",), (12, 0), True),
    ],
)
def test_that_kernels_run_within_their_major_version_and_ptx_on_what_follows(architectures, capability, runs):
    found = findings(replace(gpu(capability=capability), architectures=architectures))
    assert (found[0].severity == "ok") is runs


def test_that_devices_carry_what_each_can_and_cannot_do():
    turing = replace(H200, index=1, name="T4", capability=(7, 5), nvml_problem="not found", display_attached=True)
    environment = environment_of(replace(FITS, gpus=(H200, turing)))
    first, second, cpu = environment.devices
    assert (first.id, first.bf16, first.triton_problem, first.nvml_problem) == ("cuda:0", True, None, None)
    assert (second.id, second.bf16, second.nvml_problem, second.display_attached) == (
        "cuda:1",
        False,
        "not found",
        True,
    )
    assert (cpu.id, cpu.kind, cpu.name, cpu.triton_problem) == (
        "cpu",
        "cpu",
        "AMD EPYC",
        "Triton kernels need a CUDA device",
    )
    assert environment.device("auto") is first


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (versions(triton=None), "not installed"),
        (replace(FITS, c_compiler=False), "C compiler"),
        (replace(FITS, python_headers=False), "Python.h"),
        (gpu(capability=(6, 1)), "7.0 or newer; this device has 6.1"),
    ],
)
def test_that_a_device_says_why_triton_cannot_run_there(facts, words):
    assert words in environment_of(facts).devices[0].triton_problem


def test_that_the_interpreter_runs_triton_kernels_on_the_cpu():
    assert environment_of(variables(NO_GPU, TRITON_INTERPRET="1")).devices[-1].triton_problem is None
