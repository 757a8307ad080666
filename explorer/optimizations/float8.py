"""Matrix products of float8 numbers, each row of one side and each column of the other with a scale. Imports torch.

    x W = (sx x8) (w8 sw),    x8 = x / sx rounded to e4m3,   sx = amax of x's row / 448,   likewise w8 by columns of W

R rows, K and M columns. e4m3 has 3 bits after the leading one and reaches 448. Sums are float32. The gradient of x is
such a product, too; that of W is not: it sums over all tokens, and its errors would go into the weights.

Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3; torch/_meta_registrations.py, _scaled_mm, row-wise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.pytorch_utils import Conv1D

LARGEST = 448.0
"""Of e4m3fn. Source: the paper's table 1."""
SMALLEST = 1e-12
"""Of a row's largest number, so that a row of zeros has a scale."""
PRODUCT = "product"
"""Attribute of a projection: what multiplies its input, (R, K), with its weight, (K, M); absent: torch.mm."""

Product = Callable[[Tensor, Tensor], Tensor]


def rows_to_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    """``x`` (R, K) as e4m3 numbers, contiguous, and the float32 factor (R, 1) of each row."""
    largest = x.abs().amax(dim=1, keepdim=True).float().clamp(min=SMALLEST)
    return (x.float() * (LARGEST / largest)).to(torch.float8_e4m3fn).contiguous(), largest / LARGEST


def scaled_product(a: Tensor, b: Tensor, dtype: torch.dtype, *, fast: bool) -> Tensor:
    """``a`` (R, K) times ``b`` (K, M) in float8, in ``dtype``; K and M must be multiples of 16 on a CUDA device.

    ``fast``: sums are added up in fewer bits within the tensor cores.
    """
    rows, row_factors = rows_to_float8(a)
    columns, column_factors = rows_to_float8(b.t())
    return torch._scaled_mm(
        rows, columns.t(), scale_a=row_factors, scale_b=column_factors.t(), out_dtype=dtype, use_fast_accum=fast
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return scaled_product(x, weight, x.dtype, fast=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        dx = scaled_product(dy, weight.t(), x.dtype, fast=False)
        return dx, torch.mm(x.t(), dy).to(weight.dtype)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` (R, K) times ``weight`` (K, M) in autocast's format, or that of ``x``; differentiable once."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    return _Product.apply(x, weight)


def product_of(projection: nn.Module) -> Product:
    """What multiplies ``projection``'s input with its weight."""
    found: Product = getattr(projection, PRODUCT, torch.mm)
    return found


class Projection(Conv1D):
    """x W + b, (..., K) to (..., M), by the product that the module has as its attribute."""

    def forward(self, x: Tensor) -> Tensor:
        y = product_of(self)(x.view(-1, x.shape[-1]), self.weight)
        return (y + self.bias.to(y.dtype)).view(*x.shape[:-1], self.nf)


@contextmanager
def multiplied_by(projections: Sequence[nn.Module], made: Product) -> Iterator[None]:
    """While entered, ``projections`` multiply by ``made``; those that another toggle has changed must ask for it."""
    plain = [p for p in projections if type(p) is Conv1D]
    for projection in projections:
        setattr(projection, PRODUCT, made)
    for projection in plain:
        projection.__class__ = Projection
    try:
        yield
    finally:
        for projection in plain:
            projection.__class__ = Conv1D
        for projection in projections:
            delattr(projection, PRODUCT)
