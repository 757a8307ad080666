"""The devices of this machine, its software, and whether they fit each other."""

from __future__ import annotations

from explorer.engine.facts import Facts, GpuFacts
from explorer.engine.gather import gather
from explorer.engine.judgement import BF16_CAPABILITY, findings, triton_problem
from explorer.results.environment import DeviceInfo, Environment


def environment() -> Environment:
    """This machine: CUDA devices in torch's order, then the CPU; versions; the judgement.

    Never raises, whatever is missing or broken. To be called by the worker once it has imported torch and before it
    holds memory on a GPU.
    """
    return environment_of(gather())


def environment_of(facts: Facts) -> Environment:
    """The environment that ``facts`` describe. Pure."""
    versions = facts.versions
    return Environment(
        devices=(*(_cuda_device(facts, gpu) for gpu in facts.gpus), _cpu_device(facts)),
        platform=f"{facts.platform} (WSL2)" if facts.wsl else facts.platform,
        python=facts.python,
        explorer=facts.explorer,
        torch=versions.get("torch"),
        transformers=versions.get("transformers"),
        tokenizers=versions.get("tokenizers"),
        triton=versions.get("triton"),
        cuda=facts.cuda,
        cudnn=facts.cudnn,
        driver=facts.driver,
        numpy=versions.get("numpy"),
        qt=versions.get("qt"),
        pyqtgraph=versions.get("pyqtgraph"),
        findings=findings(facts),
    )


def _cuda_device(facts: Facts, gpu: GpuFacts) -> DeviceInfo:
    return DeviceInfo(
        id=f"cuda:{gpu.index}",
        kind="cuda",
        name=gpu.name,
        total_memory_bytes=gpu.total_memory_bytes,
        capability=gpu.capability,
        uuid=gpu.uuid,
        multiprocessors=gpu.multiprocessors,
        others_memory_bytes=gpu.others_memory_bytes,
        bf16=gpu.capability >= BF16_CAPABILITY,
        triton_problem=triton_problem(facts, gpu.capability),
        nvml_problem=gpu.nvml_problem,
        driver=facts.driver,
        display_attached=gpu.display_attached,
    )


def _cpu_device(facts: Facts) -> DeviceInfo:
    return DeviceInfo(
        id="cpu",
        kind="cpu",
        name=facts.cpu_name,
        total_memory_bytes=facts.cpu_memory_bytes,
        bf16=facts.cpu_bf16,
        triton_problem=triton_problem(facts, None),
        nvml_problem="NVML reads NVIDIA GPUs only",
    )
