"""An Environment to be read by a person, and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from explorer.results.environment import DeviceInfo, Environment

GIB = 2**30


def describe(environment: Environment) -> str:
    """Aligned lines: devices, then versions, then the judgement. What is not there reads "none"."""
    rows: list[tuple[str, str]] = []
    for device in environment.devices:
        rows.append((device.id, ", ".join(_device_parts(device))))
        rows += [("", text) for text in _device_limits(device)]
    rows += [
        ("driver", environment.driver or "none"),
        ("CUDA", environment.cuda or "none (this torch was built without)"),
        ("cuDNN", environment.cudnn or "none"),
        ("torch", environment.torch or "none"),
        ("triton", environment.triton or "none"),
        ("transformers", environment.transformers or "none"),
        ("tokenizers", environment.tokenizers or "none"),
        ("numpy", environment.numpy or "none"),
        ("Qt (PySide6)", environment.qt or "none"),
        ("pyqtgraph", environment.pyqtgraph or "none"),
        ("Python", environment.python),
        ("explorer", environment.explorer),
        ("platform", environment.platform),
    ]
    rows += [(finding.severity, finding.text) for finding in environment.findings]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def to_dict(environment: Environment) -> dict[str, Any]:
    """The environment in plain JSON types; a pair such as the capability becomes a list."""
    return {name: _plain(value) for name, value in dataclasses.asdict(environment).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _device_parts(device: DeviceInfo) -> list[str]:
    parts = [device.name]
    if device.capability is not None:
        parts.append(f"capability {device.capability[0]}.{device.capability[1]}")
    if device.total_memory_bytes > 0:
        parts.append(f"{device.total_memory_bytes / GIB:.1f} GiB")
    if device.multiprocessors is not None:
        parts.append(f"{device.multiprocessors} multiprocessors")
    parts.append("bfloat16" if device.bf16 else "no native bfloat16")
    if device.display_attached:
        parts.append("drives a screen")
    if device.uuid is not None:
        parts.append(device.uuid)
    return parts


def _device_limits(device: DeviceInfo) -> list[str]:
    """What cannot be done on a GPU; on the CPU these go without saying."""
    if device.kind == "cpu":
        return []
    limits = (("no Triton kernels", device.triton_problem), ("no power or clocks", device.nvml_problem))
    return [f"{what}: {why}" for what, why in limits if why is not None]
