"""The norms of a transformer block with the residual sums around them, and the biases that are added on the way.

    opening:  y = LayerNorm(h)                                 h goes on beside y
    middle:   h = (x + b) + r,    y = LayerNorm(h)             h goes on beside y, to the sum that ends the block

The opening's backward pass adds the gradient that h has from its later use in the same kernel. The middle's gives the
gradients of two biases besides, which are sums over tensors that it reads or writes anyway: b's is the sum of dh
over the rows, and that of the bias which is added to h where the block ends is the sum of h's own gradient. R rows of
D columns of e bytes:

    opening  forward  2 R D e bytes, backward  4 R D e
    middle   forward  4 R D e bytes, backward  4 R D e (and 16 G D of partial sums, with G <= 528 programs)
Apart, the two sums read 2 R D e more. Kernels, formats and rounding are those of kernels/layer_norm.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.launch import check, check_per_column
from explorer.kernels.layer_norm import check_norm, gradients, normalise


# To torch.compile, which cannot look into a launch, each way is one operator.
@torch.library.custom_op("explorer::opening_norm", mutates_args=())
def _open(h: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    y, _, mean, rstd = normalise(h, None, weight, bias, eps, dtype)
    return y, mean, rstd


@_open.register_fake
def _(h: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = (h.new_empty(h.shape[:-1].numel(), dtype=torch.float32) for _ in range(2))
    return h.new_empty(h.shape, dtype=dtype), mean, rstd


@torch.library.custom_op("explorer::opening_norm_gradients", mutates_args=())
def _open_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dh, _, dw, db = gradients((h, weight, bias, mean, rstd), dy, dsum, h.dtype)
    return dh, dw, db


@_open_gradients.register_fake
def _(
    h: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return h.new_empty(h.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


@torch.library.custom_op("explorer::middle_norm", mutates_args=())
def _add(
    x: Tensor, x_bias: Tensor, r: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y, h, mean, rstd = normalise(x, r, weight, bias, eps, x.dtype, x_bias)
    return h, y, mean, rstd


@_add.register_fake
def _(
    x: Tensor, x_bias: Tensor, r: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, rstd = (x.new_empty(x.shape[:-1].numel(), dtype=torch.float32) for _ in range(2))
    return r.new_empty(r.shape), x.new_empty(x.shape), mean, rstd


@torch.library.custom_op("explorer::middle_norm_gradients", mutates_args=())
def _add_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor
) -> list[Tensor]:
    dx, dr, *rest = gradients((h, weight, bias, mean, rstd), dy, dsum, dy.dtype, sums=True)
    # An operator's results may not share memory.
    return [dx, *rest] if dr is dx else [dx, *rest, dr]


@_add_gradients.register_fake
def _(h: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor) -> list[Tensor]:
    sums = [h.new_empty(h.shape[-1:], dtype=torch.float32) for _ in range(2)]
    found = [dy.new_empty(h.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape), *sums]
    return found if dy.dtype == h.dtype else [*found, h.new_empty(h.shape)]


class _Opening(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        y, mean, rstd = _open(h, weight, bias, eps, dtype)
        ctx.save_for_backward(h, weight, bias, mean, rstd)
        return y, h.view_as(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dsum: Tensor) -> tuple[Tensor | None, ...]:
        return *_open_gradients(*ctx.saved_tensors, dy, dsum), None, None


class _Middle(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_bias: Tensor, r: Tensor, weight: Tensor, bias: Tensor, last_bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        h, y, mean, rstd = _add(x, x_bias, r, weight, bias, eps)
        ctx.save_for_backward(h, weight, bias, mean, rstd)
        ctx.dtypes = x_bias.dtype, last_bias.dtype
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dsum: Tensor, dy: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, db, total_dh, total_dsum, *dr = _add_gradients(*ctx.saved_tensors, dy, dsum)
        first, last = ctx.dtypes
        return dx, total_dh.to(first), dr[0] if dr else dx, dw, db, total_dsum.to(last), None


def opening_norm(h: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """LayerNorm of ``h`` (..., D) in ``dtype``, and ``h`` itself for all its later use.

    Differentiable once. Raises as ``layer_norm.layer_norm`` does.
    """
    check_norm(h, weight, bias)
    return _Opening.apply(h, weight, bias, eps, dtype)


def middle_norm(
    x: Tensor, x_bias: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, last_bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """h = ``x`` + ``x_bias`` + ``residual`` in the dtype of ``residual``, and LayerNorm(h) in that of ``x``.

    ``x`` and ``residual``: (..., D); the others: (D,). ``last_bias`` is not added. It gets the gradient that it has
    where the caller's one and only use of h is the sum h + z + ``last_bias``.detach(). Differentiable once.

    Raises:
        ValueError: a dtype, device, width or shape that is not allowed; the message gives both sides.
    """
    check_norm(x, weight, bias)
    check(residual, "residual")
    check_per_column(x_bias, "x_bias", x)
    check_per_column(last_bias, "last_bias", x)
    if residual.shape != x.shape or residual.device != x.device:
        raise ValueError(
            f"residual is {tuple(residual.shape)} on {residual.device}; x is {tuple(x.shape)} on {x.device}"
        )
    return _Middle.apply(x, x_bias, residual, weight, bias, last_bias, eps)
