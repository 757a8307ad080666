"""Looks at this machine, once and without judging."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import explorer
from explorer.engine.facts import PACKAGES, VARIABLES, Facts, GpuFacts
from explorer.engine.nvml import MEMORY_V2, close_nvml, find_device, memory_by_process, open_nvml

T = TypeVar("T")


def gather() -> Facts:
    """Look at this machine. Never raises: what cannot be seen stays at its default.

    To be called before this process holds memory on a GPU, so that what is held there is others'.
    """
    cpu = _told(_cpu_flags_and_name, ("", ""))
    torch_facts = _torch_facts()
    nvml, nvml_problem = open_nvml()
    gpus = tuple(_with_nvml(gpu, nvml, nvml_problem) for gpu in torch_facts.pop("gpus"))
    driver = _told(lambda: _text(nvml.nvmlSystemGetDriverVersion()) if nvml else _proc_driver(), None)
    if nvml is not None:
        close_nvml(nvml)
    return Facts(
        system=platform.system(),
        machine=platform.machine(),
        platform=_told(platform.platform, sys.platform),
        python=platform.python_version(),
        explorer=explorer.__version__,
        wsl="microsoft" in _told(lambda: Path("/proc/version").read_text().lower(), ""),
        versions={**{name: _version(name) for name in PACKAGES}, **torch_facts.pop("versions")},
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        gpus=gpus,
        driver=driver,
        driver_cuda=_told(_driver_cuda, None),
        nvml_problem=nvml_problem,
        c_compiler=any(shutil.which(name) for name in ([os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"])),
        python_headers=_told(_python_headers, True),
        cpu_name=cpu[1] or _told(lambda: platform.processor() or platform.machine(), "") or "CPU",
        cpu_memory_bytes=_told(_cpu_memory_bytes, 0),
        cpu_bf16=bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", cpu[0])),
        **torch_facts,
    )


def _told(read: Callable[[], T], otherwise: T) -> T:
    """What ``read`` says, or ``otherwise`` on a machine where it cannot say it."""
    try:
        return read()
    except Exception:  # the machine is unknown, and to look at it must never end the worker
        return otherwise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _version(name: str) -> str | None:
    distributions, module = PACKAGES[name]
    for distribution in distributions:
        found = _told(partial(importlib.metadata.version, distribution), None)
        if found:
            return found
    return _told(lambda: _version_in_source(module), None)


def _version_in_source(module: str) -> str | None:
    """The version of a package that was copied without its metadata."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    match = re.search(r"""^__version__ = ["']([^"']+)""", Path(spec.origin).read_text(), re.MULTILINE)
    return match[1] if match else "unknown"


def _torch_facts() -> dict[str, Any]:
    """What torch knows, by field of ``Facts``; its warnings are caught and told as ``cuda_problem``."""
    facts: dict[str, Any] = {"gpus": (), "versions": {}}
    try:
        import torch
    except Exception as error:  # a missing library raises OSError, a broken build anything
        return facts | {"torch_problem": str(error) or type(error).__name__}
    cuda = _told(lambda: torch.version.cuda, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = _told(lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0, 0)
        gpus = [_told(partial(_gpu, index), None) for index in range(count)]
        said = [str(warning.message) for warning in caught]
        if not count and cuda and not said:
            try:
                torch.cuda.init()
            except Exception as error:
                said = [str(error)]
    versions: dict[str, str] = _told(lambda: {"torch": str(torch.__version__)}, {})
    architectures: list[str] = _told(lambda: torch.cuda.get_arch_list(), [])
    cudnn = _told(lambda: torch.backends.cudnn.version() if cuda else None, None)
    return facts | {
        "gpus": tuple(gpu for gpu in gpus if gpu is not None),
        "versions": versions,
        "cuda": cuda,
        "hip": _told(lambda: torch.version.hip, None),
        "cudnn": None if cudnn is None else cudnn_version(cudnn),
        "architectures": tuple(architectures),
        "triton_pin": _told(_triton_pin, None),
        "cuda_problem": said[0].splitlines()[0] if said and not count else None,
    }


def cudnn_version(number: int) -> str:
    """cuDNN's version number in words: 91002 is 9.10.2, 8907 is 8.9.7. Source: cudnn_version.h."""
    major_unit = 10_000 if number >= 90_000 else 1_000
    return f"{number // major_unit}.{number % major_unit // 100}.{number % 100}"


def _gpu(index: int) -> GpuFacts:
    import torch

    properties = torch.cuda.get_device_properties(index)
    return GpuFacts(
        index=index,
        name=properties.name,
        capability=(properties.major, properties.minor),
        total_memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        uuid=_told(lambda: str(properties.uuid), None),
    )


def _with_nvml(gpu: GpuFacts, nvml: Any | None, problem: str | None) -> GpuFacts:
    """``gpu`` with what NVML adds to it."""
    if nvml is None:
        return replace(gpu, nvml_problem=problem)
    handle, problem = find_device(nvml, gpu.uuid)
    if handle is None:
        return replace(gpu, nvml_problem=problem)
    memory = _told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=MEMORY_V2), None)
    own = _told(lambda: memory_by_process(nvml, handle).get(os.getpid()), None) or 0
    return replace(
        gpu,
        free_memory_bytes=None if memory is None else int(memory.free),
        others_memory_bytes=None if memory is None else max(0, int(memory.used) - own),
        display_attached=_told(lambda: bool(nvml.nvmlDeviceGetDisplayActive(handle)), False),
    )


def _triton_pin() -> str | None:
    for requirement in importlib.metadata.requires("torch") or ():
        match = re.match(r"(?:pytorch-)?triton\s*\(?==\s*([^\s;,)]+)", requirement)
        if match:
            return match[1]
    return None


def _proc_driver() -> str | None:
    """The driver's version where NVML is not there to be asked."""
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
    return match[0] if match else None


def _driver_library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def wake_driver() -> None:
    """Have the CUDA driver see its devices, so that torch finds it awake; nothing happens where there is none.

    It makes no context and holds no memory on a device. Source: CUDA driver API, cuInit.
    """
    with contextlib.suppress(OSError, AttributeError):
        _driver_library().cuInit(0)


def _driver_cuda() -> tuple[int, int] | None:
    """Source: CUDA driver API, cuDriverGetVersion: 13020 is 13.2. It needs no device and no initialisation."""
    library = _driver_library()
    version = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) or not version.value:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _python_headers() -> bool:
    folders = [sysconfig.get_paths()["include"], sysconfig.get_paths("posix_prefix")["include"]]
    for variable in ("CPATH", "C_INCLUDE_PATH"):
        folders += filter(None, os.environ.get(variable, "").split(os.pathsep))
    return any((Path(folder) / "Python.h").exists() for folder in folders)


def _cpu_flags_and_name() -> tuple[str, str]:
    text = Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^(?:flags|Features)\s*:(.*)", text, re.MULTILINE)
    name = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return flags[1] if flags else "", name[1].strip() if name else ""


def _cpu_memory_bytes() -> int:
    if sys.platform == "win32":
        kib = ctypes.c_ulonglong()
        ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kib))
        return kib.value * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
