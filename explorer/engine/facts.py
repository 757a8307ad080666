"""What can be seen of a machine, as plain data: ``gather.py`` fills it once, ``judgement.py`` judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Variables that change what is measured, or hide the GPU.
VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TRITON_INTERPRET",
)
# By the name used here: the distributions that may bring it (the first one there counts), and its module.
PACKAGES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch": (("torch",), "torch"),
    "transformers": (("transformers",), "transformers"),
    "tokenizers": (("tokenizers",), "tokenizers"),
    "triton": (("triton", "pytorch-triton", "triton-windows", "pytorch-triton-rocm"), "triton"),
    "numpy": (("numpy",), "numpy"),
    "qt": (("PySide6-Essentials", "PySide6"), "PySide6"),
    "pyqtgraph": (("pyqtgraph",), "pyqtgraph"),
    "datasets": (("datasets",), "datasets"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One device as torch and NVML see it."""

    index: int
    name: str
    capability: tuple[int, int]
    total_memory_bytes: int
    multiprocessors: int | None = None
    uuid: str | None = None
    free_memory_bytes: int | None = None
    others_memory_bytes: int | None = None
    """Memory held on it by anything but this process."""
    display_attached: bool = False
    nvml_problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The whole of what the judgement knows. ``None``: not there, or not told."""

    system: str = "Linux"
    """As platform.system() says: Linux, Windows, Darwin."""
    machine: str = "x86_64"
    platform: str = ""
    python: str = ""
    explorer: str = ""
    wsl: bool = False
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """By the names in ``PACKAGES``."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of ``VARIABLES`` that are set."""
    torch_problem: str | None = None
    """Why torch cannot be imported."""
    cuda: str | None = None
    """The CUDA version that torch was built for."""
    hip: str | None = None
    """The ROCm version that torch was built for."""
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    """What torch's kernels were compiled for: sm_90, compute_90, …"""
    triton_pin: str | None = None
    """The triton version that this torch asks for."""
    cuda_problem: str | None = None
    """What torch says when it finds no usable device although it was built for CUDA."""
    gpus: tuple[GpuFacts, ...] = ()
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver supports."""
    nvml_problem: str | None = None
    c_compiler: bool = True
    """Whether Triton finds a C compiler, which it builds its launchers with."""
    python_headers: bool = True
    """Whether Python.h is there for those launchers."""
    cpu_name: str = "CPU"
    cpu_memory_bytes: int = 0
    cpu_bf16: bool = False

    @property
    def nvidia_driver_present(self) -> bool:
        # On bare Linux libcuda alone may come from a container image without any GPU behind it.
        return self.driver is not None or (self.driver_cuda is not None and (self.wsl or self.system == "Windows"))
