"""A model's head and loss in one: cross entropy of x W^T, without ever holding all the logits.

    z = x W^T,   loss = mean over rows of (log sum_v exp z_v - z_target),   dz = (softmax(z) - onehot(target)) / rows

R rows of x, D wide; V columns of z. A chunk of the rows at a time, and no more of them than must be, the logits are
made by one matrix product; one kernel reads them, leaves the row's loss, and writes dz in their place; two more
products take that to dx and dW at once, in the forward pass. So the logits exist once, in chunks, in the dtype of
the products, and nothing is computed twice. Peak memory beyond x, W and their gradients: one chunk of
logits (at most 1.2 GiB) and dW in float32; plain, it is z, its float32 copy, and both of their gradients.

Rows of W beyond the classes, which only pad it to a better size, take no part: their logits count as -inf, and their
gradients are zero.

    products   6 R V D FLOP, as in the plain form
    kernel     reads z (what registers do not hold of a row, twice: again out of the L2 cache), writes dz: 2 R V e bytes
               to and from memory at least, with e bytes an element; some 10 FLOP an element

In float32 are the softmax, the loss, and dW's sum over the chunks. dz is kept without its factor 1 / rows, which
float16 could not hold, and without the loss's own gradient, which is not yet known: the backward pass multiplies
dx and dW by both (one pass over each).

Source: Liger-Kernel (Hsu et al. 2024, section 3.2) for the chunks and for the gradient in the place of the logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.launch import INTERPRETED, check, elementwise_shape, processors, run, tl, triton

# A row's first 6 x 8192 logits stay in the registers of 1024 threads, 48 each, and are read once; one program on each
# processor goes through the rows. With 8 programs of 256 threads a processor and a row read twice, 105 MB of rows were
# in flight, twice the L2 cache, so that the second time came from memory, too.
#
# On an H200, 10923 rows of 50257 in bf16, the kernel before this (4096, 0, 8, a program a row, exp) took 0.864 ms and
# torch's copy of the same bytes 0.516 (4258 GB/s). Of this arithmetic, with pairs of logits packed by hand:
#     columns  kept  warps  programs          ms   GB/s
#        8192     6     32  1 a processor  0.630   3489
#        8192     6     32  1 a row        0.646   3400
#        8192     4     16  2 a processor  0.652   3372
#       16384     3     32  1 a processor  0.676   3253
#        8192     0     16  2 a processor  0.729   3016
#        4096     0      8  1 a row        0.778   2826
#       16384     0     32  1 a processor  0.827   2658
# Here the compiler packs them by itself, and the next row is brought into the L2 cache while this one is computed with:
# in a step of GPT-2 124M at B = 64 its six launches take 4.23 ms, where those of the kernel before took 5.80.
_COLUMNS, _KEPT, _WARPS = 8192, 6, 32
# Few chunks: each adds to all of dW, and a product of few rows leaves processors idle.
_CHUNK_BYTES = 9 << 27
# Rows of logits start 128 bytes apart or a multiple thereof, so that an odd vocabulary (50257) slows neither the
# matrix products nor the kernel.
_ALIGN = 64


@triton.jit
def _fetch_into_l2(row_ptr, size, LINES: tl.constexpr):
    """Begin to bring ``size`` bytes from ``row_ptr`` on out of memory: an instruction for each 128, none waits."""
    line = row_ptr.to(tl.int64) + tl.minimum(tl.arange(0, LINES) * 128, size - 1)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [line], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit(repr=lambda specialization: "cross_entropy")
def _cross_entropy(
    z_ptr, stride, target_ptr, loss_ptr, rows, ignored, CLASSES: tl.constexpr, GRADIENT: tl.constexpr,
    COLUMNS: tl.constexpr, KEPT: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    LOG2_E: tl.constexpr = 1.4426950408889634
    # Tiles of COLUMNS, without a mask, of which the first KEPT stay in registers; and a last one, of up to LAST.
    TILES: tl.constexpr = (CLASSES - 1) // COLUMNS
    at = tl.arange(0, COLUMNS)
    # To the row's padded end, a multiple of 64: an odd end would split 16-byte accesses into single elements.
    last = TILES * COLUMNS + tl.arange(0, LAST)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        # In 64 bits: row times stride passes 2^31.
        row_ptr = z_ptr + tl.cast(row, tl.int64) * stride
        target = tl.load(target_ptr + row)
        if target == ignored:
            tl.store(loss_ptr + row, 0.0)
            if GRADIENT:
                nothing = tl.zeros((COLUMNS,), z_ptr.dtype.element_ty)
                for tile in range(TILES):
                    tl.store(row_ptr + tile * COLUMNS + at, nothing)
                tl.store(row_ptr + last, tl.zeros((LAST,), z_ptr.dtype.element_ty), mask=last < stride)
        else:
            # What torch would stop at with an assertion on the card becomes NaN: z is not read outside of its row.
            valid = (target >= 0) & (target < CLASSES)
            z_target = tl.load(row_ptr + target, mask=valid, other=float("nan")).to(tl.float32)
            kept = ()
            for tile in tl.static_range(KEPT):
                kept += (tl.load(row_ptr + tile * COLUMNS + at),)
            z_last = tl.load(row_ptr + last, mask=last < stride, other=0.0).to(tl.float32)
            z_last = tl.where(last < CLASSES, z_last, -float("inf"))
            top = tl.max(z_last, 0)
            if KEPT > 0:
                most = kept[0]
                for tile in tl.static_range(1, KEPT):
                    most = tl.maximum(most, kept[tile])
                top = tl.maximum(top, tl.max(most.to(tl.float32), 0))
            if LINES > 0:
                next_row = tl.cast(tl.minimum(row + tl.num_programs(0), rows - 1), tl.int64)
                _fetch_into_l2(
                    z_ptr + next_row * stride, stride * (z_ptr.dtype.element_ty.primitive_bitwidth // 8), LINES
                )
            # Finite, so that where all are -inf exp2 sees -inf and not -inf + inf.
            top = tl.maximum(top, -3.0e38)
            # The difference first, not one fma of z log2(e) - top log2(e): so the largest one's exponent is 0 exactly.
            total = tl.sum(tl.exp2((z_last - top) * LOG2_E), 0)
            if KEPT > 0:
                sums = tl.zeros((COLUMNS,), tl.float32)
                for tile in tl.static_range(KEPT):
                    sums += tl.exp2((kept[tile].to(tl.float32) - top) * LOG2_E)
                total += tl.sum(sums, 0)
            for tile in range(KEPT, TILES):
                z = tl.load(row_ptr + tile * COLUMNS + at).to(tl.float32)
                higher = tl.maximum(top, tl.max(z, 0))
                total = total * tl.exp2((top - higher) * LOG2_E) + tl.sum(tl.exp2((z - higher) * LOG2_E), 0)
                top = higher
            tl.store(loss_ptr + row, tl.log(total) - (z_target - top))
            if GRADIENT:
                # Not exp2 of z less the logarithm: the rounding of that would be an error of the whole row alike.
                # A target that is not valid makes its row NaN, as it made the loss.
                share = tl.where(valid, 1.0 / total, float("nan"))
                # From the last that was read, which the L2 cache still has.
                for back in range(TILES - KEPT):
                    tile_ptr = row_ptr + (TILES - 1 - back) * COLUMNS + at
                    dz = tl.exp2((tl.load(tile_ptr).to(tl.float32) - top) * LOG2_E) * share
                    tl.store(tile_ptr, dz.to(z_ptr.dtype.element_ty))
                for tile in tl.static_range(KEPT):
                    dz = tl.exp2((kept[tile].to(tl.float32) - top) * LOG2_E) * share
                    tl.store(row_ptr + tile * COLUMNS + at, dz.to(z_ptr.dtype.element_ty))
                dz = tl.exp2((z_last - top) * LOG2_E) * share
                tl.store(row_ptr + last, dz.to(z_ptr.dtype.element_ty), mask=last < stride)
                # Some thread has stored this element with its tile.
                tl.debug_barrier()
                dz_target = tl.exp2((z_target - top) * LOG2_E) * share - 1.0
                tl.store(row_ptr + target, dz_target.to(z_ptr.dtype.element_ty), mask=valid)


@triton.jit
def _scale(x_ptr, factor_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    inside = at < n - start
    x = tl.load(x_ptr + start + at, mask=inside).to(tl.float32) * tl.load(factor_ptr)
    tl.store(y_ptr + start + at, x.to(y_ptr.dtype.element_ty), mask=inside)


def _scaled(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` times the float32 number ``factor``, multiplied in float32; in ``dtype``."""
    # In place where the dtype stays: these are our own buffers, and dW is large.
    y = x if x.dtype == dtype else torch.empty_like(x, dtype=dtype)
    n = x.numel()
    if n:
        block, warps = elementwise_shape(n)
        run(_scale, (triton.cdiv(n, block),), x, x, factor, y, n, BLOCK=block, num_warps=warps)
    return y


def _chunk(rows: int, columns: int, itemsize: int) -> int:
    """Rows whose logits are held at a time: equal chunks, of a multiple of 128 for whole tiles, if it can be."""
    chunks = max(1, triton.cdiv(rows * columns * itemsize, _CHUNK_BYTES))
    wanted = max(1, triton.cdiv(rows, chunks))
    return triton.cdiv(wanted, 128) * 128 if wanted > 128 else wanted


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """total += a b, with ``total`` in float32 whatever the dtype of ``a`` and ``b``; ``first``: total = a b."""
    beta = 0 if first else 1  # 0: what total held, be it NaN, is not read
    if total.dtype == a.dtype:
        total.addmm_(a, b, beta=beta)
    elif a.is_cuda:
        torch.addmm(total, a, b, out_dtype=torch.float32, beta=beta, out=total)
    else:  # interpreted: torch has no such product on the CPU
        total.addmm_(a.float(), b.float(), beta=beta)


def _run(
    x: Tensor, weight: Tensor, target: Tensor, classes: int, ignored: int, x_gradient: bool, weight_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The loss, the number of rows that count, and dx and dW of their sum (None where not asked for)."""
    rows, columns = x.shape[0], weight.shape[0]
    losses = torch.empty(rows, dtype=torch.float32, device=x.device)
    dx = torch.empty_like(x) if x_gradient else None
    made = torch.empty if rows else torch.zeros
    dw = made(weight.shape, dtype=torch.float32, device=x.device) if weight_gradient else None
    chunk = _chunk(rows, columns, x.element_size())
    stride = triton.cdiv(columns, _ALIGN) * _ALIGN
    buffer = torch.empty((min(chunk, rows), stride), dtype=x.dtype, device=x.device)
    programs, tiles = processors(x), (classes - 1) // _COLUMNS
    lines = triton.next_power_of_2(triton.cdiv(stride * x.element_size(), 128)) if not INTERPRETED else 0
    for first in range(0, rows, chunk):
        part = slice(first, min(first + chunk, rows))
        height = part.stop - first
        z = buffer[:height, :columns]
        torch.mm(x[part], weight.t(), out=z)
        run(
            _cross_entropy, (min(height, programs),), x, z, stride, target[part], losses[part], height, ignored,
            CLASSES=classes, GRADIENT=x_gradient or weight_gradient, COLUMNS=_COLUMNS, KEPT=min(tiles, _KEPT),
            LAST=triton.next_power_of_2(stride - tiles * _COLUMNS), LINES=lines, num_warps=_WARPS,
        )  # fmt: skip
        if dx is not None:
            torch.mm(z, weight, out=dx[part])
        if dw is not None:
            _add_product(dw, z.t(), x[part], first=first == 0)
    counted = (target != ignored).sum()
    return losses.sum() / counted, counted, dx, dw


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, classes: int, ignored: int, dtype: torch.dtype
    ) -> Tensor:
        x_gradient, weight_gradient = ctx.needs_input_grad[:2]
        with torch.autocast(x.device.type, enabled=False):
            loss, counted, dx, dw = _run(
                x.to(dtype), weight.to(dtype), target, classes, ignored, x_gradient, weight_gradient
            )
        ctx.gradients = dx, dw
        ctx.save_for_backward(counted)
        ctx.dtypes = x.dtype, weight.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy can be differentiated once: its gradients lay in its own buffers")
        (counted,) = ctx.saved_tensors
        # Where no row counts the loss is NaN, as torch's, and the gradients are zero.
        factor = dloss.float() / counted.clamp(min=1)
        (dx, dw), ctx.gradients = ctx.gradients, None
        x_dtype, weight_dtype = ctx.dtypes
        return (
            None if dx is None else _scaled(dx, factor, x_dtype),
            None if dw is None else _scaled(dw, factor, weight_dtype),
            None, None, None, None,
        )  # fmt: skip


# For torch.compile, which cannot look into a launch over part of a buffer: to it, this is one operator.
@torch.library.custom_op("explorer::linear_cross_entropy", mutates_args=())
def _operator(
    x: Tensor, weight: Tensor, target: Tensor, classes: int, ignored: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with torch.autocast(x.device.type, enabled=False):
        loss, counted, dx, dw = _run(x.to(dtype), weight.to(dtype), target, classes, ignored, True, True)
    assert dx is not None
    assert dw is not None
    return loss, counted, dx, dw


@_operator.register_fake
def _(
    x: Tensor, weight: Tensor, target: Tensor, classes: int, ignored: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        x.new_empty((), dtype=torch.float32),
        target.new_empty(()),
        x.new_empty(x.shape, dtype=dtype),
        weight.new_empty(weight.shape, dtype=torch.float32),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.dtypes = inputs[0].dtype, inputs[1].dtype


def _differentiate(ctx: Any, dloss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    counted, dx, dw = ctx.saved_tensors
    factor = dloss.float() / counted.clamp(min=1)
    x_dtype, weight_dtype = ctx.dtypes
    return (dx * factor).to(x_dtype), (dw * factor).to(weight_dtype), None, None, None, None


_operator.register_autograd(_differentiate, setup_context=_keep)


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int = -100, classes: int | None = None
) -> Tensor:
    """Mean cross entropy of the logits ``x @ weight.T`` against ``target``, without holding the logits.

    ``x`` (..., D) and ``weight`` (V, D) on a CUDA device, ``target`` (...) int64 there too. Under autocast the
    products are in its dtype and ``x`` and ``weight`` may be in any; otherwise both are of one dtype. ``classes``:
    how many rows of ``weight`` count, from the first on; all of them by default.

    Returns the float32 scalar loss over the targets other than ``ignore_index`` (NaN where there are none, or where
    a target is not one of the classes). Differentiable once, in ``x`` and ``weight``, in their own dtypes. Never
    synchronises. Not deterministic beyond what torch's matrix products are.

    Raises:
        ValueError: a dtype, device or shape that is not allowed; the message gives both sides.
    """
    check(x, "x")
    check(weight, "weight")
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or 0 in weight.shape:
        width = x.shape[-1] if x.ndim else "D"
        raise ValueError(f"weight is {tuple(weight.shape)}; x of {tuple(x.shape)} needs (V, {width})")
    if target.shape != x.shape[:-1] or target.dtype != torch.int64:
        raise ValueError(
            f"target is {tuple(target.shape)} of {target.dtype}; x of {tuple(x.shape)} needs {tuple(x.shape[:-1])} "
            "of torch.int64"
        )
    if weight.device != x.device or target.device != x.device:
        raise ValueError(f"weight is on {weight.device} and target on {target.device}; x is on {x.device}")
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if weight.dtype != x.dtype and not torch.is_autocast_enabled(kind):
        raise ValueError(f"weight is {weight.dtype}; x is {x.dtype}: outside autocast these must be equal")
    classes = weight.shape[0] if classes is None else classes
    if not 0 < classes <= weight.shape[0]:
        raise ValueError(f"classes is {classes}; weight of {tuple(weight.shape)} allows 1 to {weight.shape[0]}")
    rows, target = x.reshape(-1, x.shape[-1]), target.reshape(-1).contiguous()
    if torch.compiler.is_compiling():
        return _operator(rows, weight, target, classes, ignore_index, dtype)[0]
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _LinearCrossEntropy.apply(rows, weight, target, classes, ignore_index, dtype)
    with torch.autocast(kind, enabled=False):
        return _run(rows.to(dtype), weight.to(dtype), target, classes, ignore_index, False, False)[0]
