"""LayerNorm, and the residual add before it, each in one kernel; backward in one pass over the data.

    h = x + r (add_layer_norm only; else h = x),   y = (h - mean) rstd w + b,   rstd = 1 / sqrt(var + eps)
    with g = dy w and n = (h - mean) rstd:   dh = rstd (g - mean(g) - n mean(g n)),   dw = sum(dy n),   db = sum(dy)

mean, var and the means in dh run over the D columns of a row, the sums over the R rows. With e bytes an element:
    forward    reads x, writes y:                      2 R D e bytes (with the add: reads x, r, writes h, y: 4 R D e)
    backward   reads h and dy, writes dh:              3 R D e bytes (with the add: reads dh too: 4 R D e)
               and 8 G D bytes of partial sums, written and read once, with G <= 528 programs
and some 8 and 14 FLOP an element. Unfused, the add alone reads x and r, writes h, and h is read again.

In float32 are: the sums over a row (two passes over registers: the mean, then the squares around it), mean and
rstd, which are saved (8 R bytes, beside h), all arithmetic, and dw and db, summed in a fixed order. A row
lies in the registers of one program, so h is read once; hence at most 16384 columns.

h is rounded to the dtype of r before its statistics are taken, as in the unfused form: so what the backward pass
reads is exactly what the forward pass normalised.

Source: Ba, Kiros and Hinton 2016, equation 3; the gradient as in torch's layer_norm_kernel.cu.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.column_sum import column_sum
from explorer.kernels.launch import DTYPES, PARTIALS, check, check_per_column, run, tl, triton

_LARGEST = 16384


def _normalise(
    x_ptr, xb_ptr, r_ptr, w_ptr, b_ptr, h_ptr, y_ptr, mean_ptr, rstd_ptr, rows, columns, eps,
    ADD: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # In 64 bits: row times columns passes 2^31 in large tensors.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row[:, None] * columns + column[None, :]
    h = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        h += tl.load(xb_ptr + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    if ADD:
        h += tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float32)
        rounded = h.to(h_ptr.dtype.element_ty)
        tl.store(h_ptr + at, rounded, mask=inside)
        h = rounded.to(tl.float32)
    # Rounded right: of one column the mean is the number itself, and what is left of it must be 0.
    mean = tl.div_rn(tl.sum(h, 1), tl.full((ROWS,), columns, tl.float32))
    centred = tl.where(inside, h - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 1) / columns + eps)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)
    w = tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    y = centred * rstd[:, None] * w[None, :] + b[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


def _differentiate_norm(
    h_ptr, w_ptr, mean_ptr, rstd_ptr, dy_ptr, dsum_ptr, dx_ptr, dr_ptr, parts_ptr, rows, columns, share,
    ADD: tl.constexpr, SUMS: tl.constexpr, SPLIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # A program has ``share`` rows. ADD: h also had a gradient of its own, dsum, from its later use. SUMS: the sums of
    # dh and of dsum over the rows are wanted, too. SPLIT: x and r are of different dtypes, so that dh is written in
    # both.
    column = tl.arange(0, COLUMNS)
    w = tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    # Whole tiles of partial sums: threads exchange nothing within the loop.
    dw = tl.zeros((ROWS, COLUMNS), tl.float32)
    db = tl.zeros((ROWS, COLUMNS), tl.float32)
    if SUMS:
        dh_total = tl.zeros((ROWS, COLUMNS), tl.float32)
        dsum_total = tl.zeros((ROWS, COLUMNS), tl.float32)
    count = tl.full((ROWS,), columns, tl.float32)
    first = tl.program_id(0).to(tl.int64) * share
    for done in range(0, share, ROWS):
        row = first + done + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        at = row[:, None] * columns + column[None, :]
        h = tl.load(h_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        # Outside n is no zero, but dy and with it every product of n is.
        n = (h - mean[:, None]) * rstd[:, None]
        dw += dy * n
        db += dy
        g = dy * w[None, :]
        mean_g = tl.div_rn(tl.sum(g, 1), count)
        mean_gn = tl.div_rn(tl.sum(g * n, 1), count)
        dh = (g - mean_g[:, None] - n * mean_gn[:, None]) * rstd[:, None]
        if ADD:
            dsum = tl.load(dsum_ptr + at, mask=inside, other=0.0).to(tl.float32)
            dh += dsum
            if SUMS:
                # Beyond the last row dh is 0, as rstd is; beyond the last column it is not, but is stored nowhere.
                dsum_total += dsum
                dh_total += dh
        tl.store(dx_ptr + at, dh.to(dx_ptr.dtype.element_ty), mask=inside)
        if SPLIT:
            tl.store(dr_ptr + at, dh.to(dr_ptr.dtype.element_ty), mask=inside)
    # Of each sum all programs' rows lie together.
    part = parts_ptr + tl.program_id(0) * columns + column
    whole = tl.num_programs(0) * columns
    tl.store(part, tl.sum(dw, 0), mask=column < columns)
    tl.store(part + whole, tl.sum(db, 0), mask=column < columns)
    if SUMS:
        tl.store(part + 2 * whole, tl.sum(dh_total, 0), mask=column < columns)
        tl.store(part + 3 * whole, tl.sum(dsum_total, 0), mask=column < columns)


# repr: the names in a profile, where they prove that a norm, or one with the residual sum in it, ran.
_forward = triton.jit(_normalise, repr=lambda specialization: "layer_norm_forward")
_backward = triton.jit(_differentiate_norm, repr=lambda specialization: "layer_norm_backward")
_sum_forward = triton.jit(_normalise, repr=lambda specialization: "residual_norm_forward")
_sum_backward = triton.jit(_differentiate_norm, repr=lambda specialization: "residual_norm_backward")


def _tile(columns: int, elements: int, each: int) -> tuple[int, int, int]:
    """(rows, columns, warps) of a tile of about ``elements``, ``each`` of them a thread."""
    width = triton.next_power_of_2(columns)
    rows = max(1, min(elements // width, 32))
    return rows, width, max(4, rows * width // (32 * each))


def normalise(
    x: Tensor, r: Tensor | None, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype,
    x_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """y in ``dtype``, h, mean, rstd. ``x_bias`` is added to each row of ``x``."""
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    r = None if r is None else r.contiguous()
    columns = x.shape[-1]
    rows = x.numel() // columns if columns else 0
    y = torch.empty_like(x, dtype=dtype)
    h = x if r is None else torch.empty_like(r)
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        # 4096 elements over 128 threads: in half precision four 16-byte loads in flight a thread.
        height, width, warps = _tile(columns, 4096, 32)
        run(
            _forward if r is None else _sum_forward, (triton.cdiv(rows, height),), x, x,
            weight if x_bias is None else x_bias.contiguous(), x if r is None else r, weight, bias, h, y, mean, rstd,
            rows, columns, eps, ADD=r is not None, BIAS=x_bias is not None, ROWS=height, COLUMNS=width, num_warps=warps,
        )  # fmt: skip
    return y, h, mean, rstd


def gradients(
    saved: tuple[Tensor, ...], dy: Tensor, dsum: Tensor | None, dtype: torch.dtype, *, sums: bool = False
) -> tuple[Tensor, ...]:
    """dh in ``dtype`` and in the dtype of ``h`` (one tensor where these agree), dw, db.

    ``sums``: and those of dh and of ``dsum`` over the rows, in float32.
    """
    h, weight, bias, mean, rstd = saved
    h, dy, w = h.contiguous(), dy.contiguous(), weight.contiguous()
    dsum = None if dsum is None else dsum.contiguous()
    dx = torch.empty(h.shape, dtype=dtype, device=h.device)
    dr = dx if dtype == h.dtype else torch.empty_like(h)
    columns, rows = h.shape[-1], mean.numel()
    dtypes = [weight.dtype, bias.dtype] + [torch.float32] * (2 * sums)
    if not rows:
        return dx, dr, *(torch.zeros(columns, dtype=each, device=h.device) for each in dtypes)
    # Half the forward pass's tile: two tensors are loaded, and two rows of sums held besides. With four rows of sums
    # its whole tile is better, in half the programs: on an H200, bf16, 65536 x 768, 0.245 ms; else 0.340, and four
    # other shapes 0.278 to 0.394.
    height, width, warps = _tile(columns, 4096, 32) if sums else _tile(columns, 2048, 16)
    programs = PARTIALS // 2 if sums else PARTIALS
    share = triton.cdiv(rows, height * programs) * height
    groups = triton.cdiv(rows, share)
    parts = torch.empty((len(dtypes), groups, columns), dtype=torch.float32, device=h.device)
    run(
        _backward if dsum is None else _sum_backward, (groups,), h, h, w, mean, rstd, dy, h if dsum is None else dsum,
        dx, dr, parts, rows, columns, share, ADD=dsum is not None, SUMS=sums, SPLIT=dr is not dx,
        ROWS=height, COLUMNS=width, num_warps=warps,
        # Else g - mean(g) takes dy w unrounded and mean(g) of its rounded values: of one column 0 would not be 0.
        enable_fp_fusion=False,
    )  # fmt: skip
    return dx, dr, *(column_sum(part, each) for part, each in zip(parts, dtypes, strict=True))


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        y, h, mean, rstd = normalise(x, None, weight, bias, eps, dtype)
        ctx.save_for_backward(h, weight, bias, mean, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: under checkpointing a second reading is refused
        dx, _, dw, db = gradients(saved, dy, None, saved[0].dtype)
        return dx, dw, db, None, None


# For torch.compile, which cannot look into a launch: to it, each way is one operator.
@torch.library.custom_op("explorer::layer_norm", mutates_args=())
def _operator(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    y, _, mean, rstd = normalise(x, None, weight, bias, eps, dtype)
    return y, mean, rstd


@_operator.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.shape[:-1].numel()
    mean, rstd = (x.new_empty(rows, dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape, dtype=dtype), mean, rstd


@torch.library.custom_op("explorer::layer_norm_gradients", mutates_args=())
def _gradient_operator(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dx, _, dw, db = gradients((x, weight, bias, mean, rstd), dy, None, x.dtype)
    return dx, dw, db


@_gradient_operator.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3], *output[1:])


def _differentiate(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradient_operator(*ctx.saved_tensors, dy), None, None


_operator.register_autograd(_differentiate, setup_context=_keep)


class _AddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, r: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        y, h, mean, rstd = normalise(x, r, weight, bias, eps, x.dtype)
        ctx.save_for_backward(h, weight, bias, mean, rstd)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dsum: Tensor, dy: Tensor) -> tuple[Tensor | None, ...]:
        dx, dr, dw, db = gradients(ctx.saved_tensors, dy, dsum, dy.dtype)
        return dx, dr, dw, db, None


def check_norm(x: Tensor, weight: Tensor, bias: Tensor) -> None:
    check(x, "x")
    check_per_column(weight, "weight", x)
    check_per_column(bias, "bias", x)
    if x.shape[-1] > _LARGEST:
        raise ValueError(f"x of {tuple(x.shape)} has {x.shape[-1]} columns; allowed: at most {_LARGEST}")


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, dtype: torch.dtype | None = None) -> Tensor:
    """LayerNorm over the last dimension of a CUDA tensor ``x`` (..., D), ``weight`` and ``bias`` (D,).

    Returns a contiguous tensor of the shape of ``x`` in ``dtype``, by default that of ``x``; differentiable once, in
    ``x``, ``weight`` and ``bias``, whose dtypes may differ. What is not contiguous is copied.

    Raises:
        ValueError: a dtype, device, width or shape that is not allowed; the message gives both sides.
    """
    check_norm(x, weight, bias)
    dtype = x.dtype if dtype is None else dtype
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}; allowed: {', '.join(str(d) for d in DTYPES)}")
    if torch.compiler.is_compiling():
        return _operator(x, weight, bias, eps, dtype)[0]
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad):
        return _LayerNorm.apply(x, weight, bias, eps, dtype)
    return normalise(x, None, weight, bias, eps, dtype)[0]


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """h = x + residual and LayerNorm(h): the step between two halves of a transformer block.

    Returns (h, y), contiguous: h in the dtype of ``residual`` (the stream may stay in float32), y in that of ``x``.
    Both are differentiable once. Otherwise as ``layer_norm``.

    Raises:
        ValueError: a dtype, device, width or shape that is not allowed; the message gives both sides.
    """
    check_norm(x, weight, bias)
    check(residual, "residual")
    if residual.shape != x.shape or residual.device != x.device:
        raise ValueError(
            f"residual is {tuple(residual.shape)} on {residual.device}; x is {tuple(x.shape)} on {x.device}"
        )
    inputs = (x, residual, weight, bias)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _AddLayerNorm.apply(*inputs, eps)
    y, h, _, _ = normalise(*inputs, eps, x.dtype)
    return h, y
