"""What a run ran on: devices and versions, as plain data that travels and is stored with results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """One device and what it can do. Bytes are bytes; ``None`` means the machine does not say."""

    id: str
    """cpu or cuda:N, as torch names it."""
    kind: Literal["cuda", "cpu"]
    name: str
    total_memory_bytes: int
    capability: tuple[int, int] | None = None
    """CUDA compute capability, such as (9, 0)."""
    uuid: str | None = None
    multiprocessors: int | None = None
    others_memory_bytes: int | None = None
    """What anything but this program held of it when it was looked at."""
    bf16: bool = False
    """Whether bfloat16 arithmetic runs natively."""
    triton_problem: str | None = None
    """Why Triton kernels cannot run here, or None where they can."""
    nvml_problem: str | None = None
    """Why power, temperature and clocks are not read here, or None where they are."""
    driver: str | None = None
    display_attached: bool = False
    """Whether a screen is driven by this device, so that its memory and time are shared with it."""

    @property
    def free_for_a_run_bytes(self) -> int | None:
        """What it had for this program when it was looked at; None on a CPU."""
        return None if self.kind == "cpu" else self.total_memory_bytes - (self.others_memory_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One judgement on the machine or its versions: what was seen, and what to do."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and its software. Versions are ``None`` where the package is not there."""

    devices: tuple[DeviceInfo, ...]
    """CUDA devices first, the CPU last: the first one is what device=auto means."""
    platform: str
    python: str
    explorer: str
    torch: str | None = None
    transformers: str | None = None
    tokenizers: str | None = None
    triton: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    numpy: str | None = None
    qt: str | None = None
    pyqtgraph: str | None = None
    findings: tuple[Finding, ...] = ()

    def device(self, wanted: str) -> DeviceInfo:
        """The device that ``wanted`` (auto, cpu, cuda, cuda:N) names here.

        Raises:
            ValueError: there is none; the message lists those there are.
        """
        if wanted == "auto":
            return self.devices[0]
        for device in self.devices:
            if wanted == device.id or (wanted == "cuda" and device.id == "cuda:0"):
                return device
        raise ValueError(f"device {wanted!r} is not here; allowed: auto, {', '.join(d.id for d in self.devices)}")
