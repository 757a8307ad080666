"""Bias and GeLU in one kernel: y = gelu(x + b), b added to each row of x; backward gives dx and db in one pass.

With R rows, D columns and e bytes an element (b and db are small beside them):
    forward   reads x, writes y:          2 R D e bytes, about  8 R D FLOP
    backward  reads x and dy, writes dx:  3 R D e bytes, about 17 R D FLOP
              and 4 G D bytes of partial sums, written and read once, with G tiles' columns in <= 1056 programs
Unfused, the bias is one more pass forward (2 R D e bytes) and its gradient one more backward (R D e). All
arithmetic is in float32, x + b included, which is not rounded in between; db is accumulated in float32, in a
fixed order. Saved for the backward pass: x and b.

Source: as kernels/gelu.py, whose formulas these kernels share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.column_sum import column_sum
from explorer.kernels.gelu import gelu_of, gelu_slope
from explorer.kernels.launch import check, check_per_column, run, tl, triton

# A tile of 4 rows of 1024 columns over 256 threads: 16 elements a thread, 16 bytes an access where the width is a
# multiple of 16. GPT-2's widths times 4 (3072, 4096, 5120, 6400) leave little of the last tile idle.
_ROWS, _COLUMNS, _WARPS = 4, 1024, 8
# Backward half of that, since two tensors are loaded, over 128 threads: eight programs fit on a processor's 65536
# registers with 64 a thread. On an H200, bf16, 65536 x 3072: 0.334 ms, 3.62 TB/s; 4 rows over 256 threads in 528
# programs 0.343, and three other tiles 0.343 to 0.356.
_ROWS_BACK, _WARPS_BACK, _REGISTERS = 2, 4, 64
# The next rows are loaded while these are computed with: 12 launches of this size in a step take 3.75 ms, without 4.01.
_STAGES = 2
_PROGRAMS = 1056
"""Eight on each of an H200's 132 processors."""


# repr: the name in a profile, where it proves that this kernel ran.
@triton.jit(repr=lambda specialization: "bias_gelu_forward")
def _forward(x_ptr, b_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tiles = tl.cdiv(columns, COLUMNS)
    # In 64 bits: row times columns passes 2^31 in large tensors.
    row = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row[:, None] * columns + column[None, :]
    b = tl.load(b_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) + b[None, :]
    tl.store(y_ptr + at, gelu_of(x).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=lambda specialization: "bias_gelu_backward")
def _backward(
    x_ptr,
    b_ptr,
    dy_ptr,
    dx_ptr,
    parts_ptr,
    rows,
    columns,
    share,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    # A program has ``share`` rows of one tile's columns, and adds them up on the way.
    tiles = tl.cdiv(columns, COLUMNS)
    group = tl.program_id(0) // tiles
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    b = tl.load(b_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = group.to(tl.int64) * share
    for done in tl.range(0, share, ROWS, num_stages=STAGES):
        row = first + done + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        at = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) + b[None, :]
        # Outside dy is 0 and so is dx; or NaN, where the bias alone makes the whole column so.
        dx = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32) * gelu_slope(x)
        total += dx
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    tl.store(parts_ptr + group * columns + column, tl.sum(total, 0), mask=column < columns)


def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    x, bias = x.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        rows = x.numel() // columns
        programs = (triton.cdiv(rows, _ROWS) * triton.cdiv(columns, _COLUMNS),)
        run(
            _forward, programs, x, x, bias, y, rows, columns, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS
        )  # fmt: skip
    return y


def _gradients(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """dx and db."""
    x, dy, b = x.contiguous(), dy.contiguous(), bias.contiguous()
    dx = torch.empty_like(x)
    if not x.numel():
        return dx, torch.zeros_like(bias)
    columns = x.shape[-1]
    rows = x.numel() // columns
    tiles = triton.cdiv(columns, _COLUMNS)
    # Each program takes a multiple of the tile's rows; _PROGRAMS in all, or fewer.
    share = triton.cdiv(rows, _ROWS_BACK * max(1, _PROGRAMS // tiles)) * _ROWS_BACK
    groups = triton.cdiv(rows, share)
    parts = torch.empty((groups, columns), dtype=torch.float32, device=x.device)
    run(
        _backward, (groups * tiles,), x, x, b, dy, dx, parts, rows, columns, share,
        ROWS=_ROWS_BACK, COLUMNS=_COLUMNS, STAGES=_STAGES, num_warps=_WARPS_BACK, maxnreg=_REGISTERS,
    )  # fmt: skip
    return dx, column_sum(parts, bias.dtype)


class _BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        return _bias_gelu(x, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        return _gradients(*ctx.saved_tensors, dy)


# For torch.compile, which cannot look into a launch: to it, each way is one operator.
@torch.library.custom_op("explorer::bias_gelu", mutates_args=())
def _operator(x: Tensor, bias: Tensor) -> Tensor:
    return _bias_gelu(x, bias)


@_operator.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("explorer::bias_gelu_gradients", mutates_args=())
def _gradient_operator(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return _gradients(x, bias, dy)


@_gradient_operator.register_fake
def _(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), bias.new_empty(bias.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    return _gradient_operator(*ctx.saved_tensors, dy)


_operator.register_autograd(_differentiate, setup_context=_keep)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias), the tanh form, of a CUDA tensor ``x`` (..., D) and ``bias`` (D,); differentiable once.

    Returns a contiguous tensor of the shape and dtype of ``x``. ``bias`` may be in another dtype than ``x`` (float32
    beside half precision, as under autocast) and gets its gradient in its own. What is not contiguous is copied.

    Raises:
        ValueError: a dtype or device that is not allowed, or a bias that does not fit; the message gives both sides.
    """
    check(x, "x")
    check_per_column(bias, "bias", x)
    if torch.compiler.is_compiling():
        return _operator(x, bias)
    if torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad):
        return _BiasGelu.apply(x, bias)
    return _bias_gelu(x, bias)
