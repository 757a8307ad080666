"""One projection's gradient from those of its three parts, and its bias's, in one pass.

A projection x W + b of 3 D columns is cut in three (queries, keys, values), and their gradients come apart. Put side by
side they are the projection's, whose sum over the R rows is that of b. With e bytes an element:
    backward  reads the three, writes one:  6 R D e bytes, and 12 G D of partial sums, with G programs to a column
Apart, the sum reads 3 R D e bytes more. Sums are float32, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.column_sum import column_sum
from explorer.kernels.launch import check, run, tl, triton

# A tile of 16 rows of 256 columns over 256 threads: two 16-byte accesses a thread in half precision, and as many of the
# next rows under way. GPT-2's widths (768, 1024, 1280) are whole tiles. On an H200 12 launches in a step, bf16,
# 65536 x 768, take 1.97 ms; tiles of 32 rows, each loaded when the one before is done with, 2.12.
_ROWS, _COLUMNS, _WARPS = 16, 256, 8
_STAGES = 3
_PROGRAMS = 528
"""Four on each of an H200's 132 processors."""


@triton.jit(repr=lambda specialization: "joined_gradient")
def _join(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    parts_ptr,
    rows,
    columns,
    share,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    tiles = tl.cdiv(columns, COLUMNS)
    group = tl.program_id(0) // (3 * tiles)
    third = tl.program_id(0) // tiles % 3
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    source = q_ptr
    if third == 1:
        source = k_ptr
    if third == 2:
        source = v_ptr
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    # In 64 bits: row times columns passes 2^31 in large tensors.
    first = group.to(tl.int64) * share
    for done in tl.range(0, share, ROWS, num_stages=STAGES):
        row = first + done + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        total += x.to(tl.float32)
        tl.store(out_ptr + row[:, None] * (3 * columns) + (third * columns + column)[None, :], x, mask=inside)
    at = group * 3 * columns + third * columns + column
    tl.store(parts_ptr + at, tl.sum(total, 0), mask=column < columns)


# To torch.compile, which cannot look into a launch, this is one operator.
@torch.library.custom_op("explorer::joined_gradient", mutates_args=())
def _joined(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    dq, dk, dv = dq.contiguous(), dk.contiguous(), dv.contiguous()
    columns = dq.shape[-1]
    rows = dq.numel() // columns if columns else 0
    joined = torch.empty((*dq.shape[:-1], 3 * columns), dtype=dq.dtype, device=dq.device)
    if not rows:
        return joined, torch.zeros(3 * columns, dtype=torch.float32, device=dq.device)
    tiles = triton.cdiv(columns, _COLUMNS)
    share = triton.cdiv(rows, _ROWS * max(1, _PROGRAMS // (3 * tiles))) * _ROWS
    groups = triton.cdiv(rows, share)
    parts = torch.empty((groups, 3 * columns), dtype=torch.float32, device=dq.device)
    run(
        _join, (groups * 3 * tiles,), dq, dq, dk, dv, joined, parts, rows, columns, share,
        ROWS=_ROWS, COLUMNS=_COLUMNS, STAGES=_STAGES, num_warps=_WARPS,
    )  # fmt: skip
    return joined, column_sum(parts, torch.float32)


@_joined.register_fake
def _(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    columns = 3 * dq.shape[-1]
    return dq.new_empty((*dq.shape[:-1], columns)), dq.new_empty(columns, dtype=torch.float32)


class _Thirds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        ctx.dtype = bias.dtype
        return x.chunk(3, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        dx, db = _joined(dq, dk, dv)
        return dx, db.to(ctx.dtype)


def thirds(x: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """The three (..., D) that ``x`` (..., 3 D) consists of.

    ``bias`` (3 D,) is not added. It gets the gradient that it has where ``x`` is a sum of which ``bias``.detach() is
    one part. Differentiable once.

    Raises:
        ValueError: a dtype, device or shape that is not allowed; the message gives both sides.
    """
    check(x, "x")
    if x.ndim == 0 or bias.shape != x.shape[-1:] or x.shape[-1] % 3:
        raise ValueError(f"bias is {tuple(bias.shape)} and x {tuple(x.shape)}; allowed: (3 D,) and (..., 3 D)")
    return _Thirds.apply(x, bias)
