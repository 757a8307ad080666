"""The residual stream between two products of a decoding step of several rows: added to, and normed for the next.

    x += sum of parts + b;   n = norm(x)          x (M, K), parts (P, M, K), n (M, K)

A program has a row: 4 K (P + 2) + e K bytes of it, from the L2 cache, for some K (P + 9) FLOP: bound by latency. Sums
and statistics in float32, the variance from centred numbers; parts are added in their order, so that the same numbers
come out each time.

Source: Ba et al. 2016, arXiv:1607.06450.
"""

from __future__ import annotations

import torch
from torch import Tensor

from explorer.kernels.launch import check, dependent, run, tl, triton

Norm = tuple[Tensor, Tensor, float]
"""Weight (K,), bias (K,) and epsilon of a LayerNorm over K."""


@triton.jit(repr=lambda specialization: "decode_residual")
def _residual(
    x_ptr, parts_ptr, bias_ptr, norm_w_ptr, norm_b_ptr, n_ptr, rows, width, eps,
    PARTS: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0)
    d = tl.arange(0, WIDE)
    inside = d < width
    # Constant, so before the wait.
    if BIAS:
        bias = tl.load(bias_ptr + d, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        norm_w = tl.load(norm_w_ptr + d, mask=inside, other=0.0).to(tl.float32)
        norm_b = tl.load(norm_b_ptr + d, mask=inside, other=0.0).to(tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + row * width + d, mask=inside, other=0.0).to(tl.float32)
    if PARTS:
        total = tl.zeros((WIDE,), tl.float32)
        for part in tl.static_range(PARTS):
            total += tl.load(parts_ptr + (part * rows + row) * width + d, mask=inside, other=0.0)
        if BIAS:
            total += bias
        x += total
        tl.store(x_ptr + row * width + d, x.to(x_ptr.dtype.element_ty), mask=inside)
    if NORM:
        mean = tl.sum(x, 0) / width
        centred = tl.where(inside, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 0) / width + eps)
        n = centred * rstd * norm_w + norm_b
        tl.store(n_ptr + row * width + d, n.to(n_ptr.dtype.element_ty), mask=inside)


def decode_residual(
    x: Tensor, parts: Tensor | None, bias: Tensor | None, norm: Norm | None, normed: Tensor | None
) -> None:  # fmt: skip
    """Add ``parts`` (P, M, K), float32, and ``bias`` (K,) to ``x`` (M, K), and fill ``normed`` (M, K) by ``norm``.

    Either half may be left out. All contiguous. Never synchronises.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    check(x, "x")
    rows, width = x.shape
    for name, tensor, shape in (
        ("x", x, (rows, width)), ("parts", parts, (0 if parts is None else len(parts), rows, width)),
        ("bias", bias, (width,)), ("normed", normed, (rows, width)),
    ):  # fmt: skip
        if tensor is not None and (tensor.shape != shape or not tensor.is_contiguous()):
            raise ValueError(f"{name} is {tuple(tensor.shape)}; x of {(rows, width)} needs contiguous {shape}")
    if parts is not None and parts.dtype != torch.float32:
        raise ValueError(f"parts is {parts.dtype}; allowed: torch.float32")
    if (norm is None) != (normed is None) or (bias is not None and parts is None):
        raise ValueError("norm and normed belong together, and bias is added with parts only")
    early = dependent(x)
    norm_w, norm_b, eps = (x, x, 0.0) if norm is None else norm
    some = [x if tensor is None else tensor for tensor in (parts, bias)]
    run(
        _residual, (rows,), x, x, *some, norm_w, norm_b, x if normed is None else normed, rows, width, eps,
        PARTS=0 if parts is None else len(parts), BIAS=bias is not None, NORM=norm is not None,
        WIDE=triton.next_power_of_2(width), EARLY=early, num_warps=4, launch_pdl=early,
    )  # fmt: skip
