"""What every kernel file shares: Triton itself, which tensors are taken, block sizes, and the launch.

Triton is imported here alone, so that a machine without it gets one clear error.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        f"these kernels need triton, which cannot be imported here: {error}. It comes with torch's CUDA builds on "
        "Linux x86-64 (pip install triton)."
    ) from error

__all__ = [
    "DEVICE",
    "DTYPES",
    "INTERPRETED",
    "PARTIALS",
    "check",
    "check_per_column",
    "dependent",
    "elementwise_shape",
    "processors",
    "run",
    "tl",
    "triton",
]

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""Whether TRITON_INTERPRET=1 was set when triton was imported: kernels then run as numpy on CPU tensors."""

DEVICE = "cpu" if INTERPRETED else "cuda"
# Triton's interpreter truncates where a bfloat16 store must round: refuse it there rather than be wrong.
DTYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.float16, torch.bfloat16)

# (elements a program, warps) up to _SMALL_ELEMENTS elements and beyond. A thread then holds 8 elements, one 16-byte
# access in half precision, where there are few programs to fill the card with, and 16 where there are many: two
# (half) or four (float32) independent 16-byte loads in flight a thread, as a copy at full speed needs.
_SMALL_ELEMENTS = 1 << 20
_SMALL = (1024, 4)
_LARGE = (4096, 8)


def check(x: Tensor, name: str) -> None:
    """Refuse what the kernels cannot take.

    Raises:
        ValueError: device or dtype of ``x`` is not among the allowed, which the message lists.
    """
    if x.dtype not in DTYPES:
        raise ValueError(f"{name} is {x.dtype}; allowed: {', '.join(str(d) for d in DTYPES)}")
    if x.device.type != DEVICE:
        raise ValueError(f"{name} is on {x.device}; allowed: {DEVICE}")


def check_per_column(v: Tensor, name: str, x: Tensor) -> None:
    """Refuse ``v`` unless it holds one number for each column (last dimension) of ``x``, on its device.

    Raises:
        ValueError: it does not; the message gives both sides.
    """
    if x.ndim == 0 or v.shape != x.shape[-1:]:
        raise ValueError(
            f"{name} is {tuple(v.shape)}; x of {tuple(x.shape)} needs {tuple(x.shape[-1:]) or '(columns,)'}"
        )
    if v.dtype not in DTYPES:
        raise ValueError(f"{name} is {v.dtype}; allowed: {', '.join(str(d) for d in DTYPES)}")
    if v.device != x.device:
        raise ValueError(f"{name} is on {v.device}; x is on {x.device}")


PARTIALS = 528
"""Programs that each add up their share of the rows in a backward pass: four on each of an H200's 132 processors.
A constant, so that a sum over rows has the same order, and the same bits, on every card."""


def elementwise_shape(n: int) -> tuple[int, int]:
    """(elements a program, warps) for a kernel over ``n`` elements."""
    return _SMALL if n <= _SMALL_ELEMENTS else _LARGE


def processors(x: Tensor) -> int:
    """How many processors the device of ``x`` has."""
    return 3 if INTERPRETED else torch.cuda.get_device_properties(x.device).multi_processor_count


def dependent(x: Tensor) -> bool:
    """Whether kernels on the device of ``x`` can begin before the one ahead has ended (from Hopper on).

    A kernel that is launched so (``launch_pdl``) lets the next one begin as soon as all its own programs have, by
    ``gdc_launch_dependents``, and by ``gdc_wait`` waits for the one ahead to end before it touches anything that is not
    constant: launch, weights' way from memory and the end of the kernel ahead overlap.

    A token of GPT-2 124M at one row took 180.1 us with it and 276.0 without, at 32 rows 408.6 and 452.1 (bf16 weights,
    replayed graphs; one NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0).

    Source: CUDA programming guide, programmatic dependent launch; PTX ISA, griddepcontrol.
    """
    supported = hasattr(tl.extra.cuda, "gdc_wait") and hasattr(tl.extra.cuda, "gdc_launch_dependents")
    return supported and not INTERPRETED and torch.cuda.get_device_capability(x.device) >= (9, 0)


def run(kernel: Any, programs: tuple[int, ...], x: Tensor, *args: Any, **options: Any) -> None:
    """Launch ``kernel`` on the device of ``x``, whichever is current: Triton itself takes the current one."""
    if INTERPRETED or x.get_device() == torch.cuda.current_device():
        kernel[programs](*args, **options)
    else:
        with torch.cuda.device(x.device):
            kernel[programs](*args, **options)
