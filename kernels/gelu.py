"""GeLU in its tanh form, as GPT-2 has it, forward and backward in one kernel each.

    gelu(x) = 0.5 x (1 + tanh(u)) = x s,    s = sigmoid(2 u),    u = sqrt(2/pi) (x + 0.044715 x^3)
    dx = dy (s + x s (1 - s) 2 du/dx),      du/dx = sqrt(2/pi) (1 + 3 * 0.044715 x^2)

With n elements of e bytes each (e = 2 or 4):
    forward   reads x, writes y:         2 n e bytes, about  7 n FLOP (one exp2, one division)
    backward  reads x and dy, writes dx: 3 n e bytes, about 15 n FLOP (one exp2, one division)
At some 3 FLOP a byte both are bound by memory alone, so the design is that of a copy: 16-byte accesses, and
several of them in flight a thread. The block that is full takes no mask, since a mask over a count that is no
multiple of 8 would split the accesses into single elements; only the last block of a tensor takes one.

All arithmetic is in float32 from the loads to the stores; nothing is accumulated across elements. Nothing is
saved for the backward pass except x itself, from which s is computed anew.

The sigmoid form keeps its relative precision where 1 + tanh(u) cancels. Limits: 2 u overflows to +-inf for
large |x|, where exp2 gives exactly inf or 0 and s exactly 0 or 1. In the derivative x^2 is capped, so that it is
0 or 1 there too and not 0 * inf. NaN gives NaN; so do, as by the formula and in torch, gelu(-inf) and the
gradient at +-inf.

Source of the formula: Hendrycks and Gimpel 2016, section 2; GPT-2's own code, ``gelu`` in model.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.launch import check, elementwise_shape, run, tl, triton

# -2 u log2(e) = x (LINEAR + CUBIC x^2), so that exp(-2 u) is one exp2.
_LINEAR = tl.constexpr(-2.302208198144325)  # -2 sqrt(2/pi) log2(e)
_CUBIC = tl.constexpr(-0.1029432395800235)  # 0.044715 times that
_SLOPE = tl.constexpr(1.5957691216057308)  # 2 sqrt(2/pi)
_SLOPE_SQUARE = tl.constexpr(0.21406444881780073)  # 3 * 0.044715 times that
# At |x| = 32 the sigmoid has long been exactly 0 or 1 in float32: a larger x^2 cannot change the derivative.
_SQUARE_CAP = tl.constexpr(1024.0)


@triton.jit
def gelu_of(x):
    """gelu(x) for float32 ``x``."""
    return x / (1.0 + tl.exp2(x * (_LINEAR + _CUBIC * x * x)))


@triton.jit
def gelu_slope(x):
    """The derivative of gelu at float32 ``x``."""
    # With t = exp(-2 |u|) <= 1 neither 1 - s cancels nor anything overflows: s (1 - s) = t / (1 + t)^2.
    square = tl.minimum(x * x, _SQUARE_CAP)
    t = tl.exp2(tl.abs(x) * (_LINEAR + _CUBIC * square))
    r = 1.0 / (1.0 + t)
    s = tl.where(x < 0, t * r, r)
    return s + x * (t * r * r) * (_SLOPE + _SLOPE_SQUARE * square)


# repr: the name in a profile, where it proves that this kernel ran.
@triton.jit(repr=lambda specialization: "gelu_forward")
def _forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # In 64 bits: start passes 2^31 in large tensors. Within a block 32 bits do.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    x_ptr += start
    y_ptr += start
    if n - start >= BLOCK:
        x = tl.load(x_ptr + at).to(tl.float32)
        tl.store(y_ptr + at, gelu_of(x).to(y_ptr.dtype.element_ty))
    else:
        inside = at < n - start
        x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
        tl.store(y_ptr + at, gelu_of(x).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=lambda specialization: "gelu_backward")
def _backward(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    x_ptr += start
    dy_ptr += start
    dx_ptr += start
    if n - start >= BLOCK:
        x = tl.load(x_ptr + at).to(tl.float32)
        dy = tl.load(dy_ptr + at).to(tl.float32)
        tl.store(dx_ptr + at, (dy * gelu_slope(x)).to(dx_ptr.dtype.element_ty))
    else:
        inside = at < n - start
        x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside).to(tl.float32)
        tl.store(dx_ptr + at, (dy * gelu_slope(x)).to(dx_ptr.dtype.element_ty), mask=inside)


def _gelu(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    # empty_like repeats the strides of x exactly when x fills its memory without gap or overlap, transposed or
    # not: then the order of elements in memory serves both. Otherwise a contiguous copy of x is read.
    if y.stride() != x.stride():
        x = x.contiguous()
        y = torch.empty_like(x)
    n = x.numel()
    if n:
        block, warps = elementwise_shape(n)
        run(_forward, ((n + block - 1) // block,), x, x, y, n, BLOCK=block, num_warps=warps)
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _gelu(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        if dx.stride() != x.stride() or dx.stride() != dy.stride():
            x, dy = x.contiguous(), dy.contiguous()
            dx = torch.empty_like(x)
        n = x.numel()
        if n:
            block, warps = elementwise_shape(n)
            run(_backward, ((n + block - 1) // block,), x, x, dy, dx, n, BLOCK=block, num_warps=warps)
        return dx


def gelu(x: Tensor) -> Tensor:
    """GeLU in its tanh form of a CUDA tensor of any shape and strides; differentiable once.

    Returns a tensor of the shape and dtype of ``x``: with its strides where ``x`` is dense (contiguous,
    transposed, …), contiguous where it has gaps or overlaps (a slice, an expanded tensor), in which case ``x``
    is copied first. The backward pass likewise copies where the layouts of ``x`` and of the gradient differ.
    Never synchronises.

    Raises:
        ValueError: ``x`` is not float32, float16 or bfloat16, or not on a CUDA device.
    """
    check(x, "x")
    # Without a gradient to come the autograd function would only cost time on the host.
    if x.requires_grad and torch.is_grad_enabled():
        return _Gelu.apply(x)
    return _gelu(x)
