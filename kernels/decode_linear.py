"""A linear layer on the few rows of a decoding step, with what lies around it in a Transformer: one kernel.

    y = act(norm(x) W^T s + b),   or   y += x W^T s + b          x (M, K), W (N, K), y (M, N)

norm is LayerNorm or nothing, act the tanh GeLU or nothing, s a scale an output where W is int8, else nothing. For
queries, keys and values the outputs go three ways instead: queries to y, keys and values into their slot of a cache.

At M rows the weights are read once, N K e bytes, for 2 M N K FLOP: at M = 32 in 16 bits still only 32 FLOP a byte, so
reading them is all that matters. A program has some outputs and all of K, so sums need no second pass; outputs a
program are chosen so that some 130 to 260 programs share the work. What is computed twice is little: each program
takes the statistics of its rows anew, from the cache, which spares a kernel and its launch for each norm.

W lies with its inputs together (N, K): a row of it is one stretch of memory for one output.

One row: products and sums in float32, without rounding in between. More rows: tensor cores, in the weights' format
(int8 in that of s), accumulated in float32; float32 itself without TF32. Statistics are in float32 always.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from explorer.kernels.gelu import gelu_of
from explorer.kernels.launch import DTYPES, check, run, tl, triton

_PROGRAMS = 132
"""At least so many, where there are outputs enough: one for each processor of an H200."""
_MOST_COLUMNS = 32
_MOST_ROWS = 32


@triton.jit(repr=lambda specialization: "decode_linear")
def _linear(
    x_ptr, w_ptr, scale_ptr, bias_ptr, norm_w_ptr, norm_b_ptr, y_ptr, keys_ptr, values_ptr, newest_ptr,
    rows, columns, slots, eps, K: tl.constexpr,
    SCALED: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr,
    HEAD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    # HEAD: numbers a head where keys and values go into caches (B, heads, slots, HEAD), else 0.
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row_in, column_in = row < rows, column < columns
    one_row = tl.program_id(1)
    if ROWS == 1:
        if NORM:
            at = tl.arange(0, WHOLE)
            x = tl.load(x_ptr + one_row * K + at, mask=at < K, other=0.0).to(tl.float32)
            mean = tl.sum(x, 0) / K
            centred = tl.where(at < K, x - mean, 0.0)
            rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 0) / K + eps)
        products = tl.zeros((COLUMNS, CHUNK), tl.float32)
        for start in tl.static_range(0, K, CHUNK):
            at = start + tl.arange(0, CHUNK)
            at_in = at < K
            w = tl.load(
                w_ptr + column[:, None] * K + at[None, :], mask=column_in[:, None] & at_in[None, :], other=0.0
            ).to(tl.float32)
            x = tl.load(x_ptr + one_row * K + at, mask=at_in, other=0.0).to(tl.float32)
            if NORM:
                # Beyond K the weight is 0, and so is every product.
                norm_w = tl.load(norm_w_ptr + at, mask=at_in, other=0.0).to(tl.float32)
                norm_b = tl.load(norm_b_ptr + at, mask=at_in, other=0.0).to(tl.float32)
                x = (x - mean) * rstd * norm_w + norm_b
            products += w * x[None, :]
        y = tl.sum(products, 1)[None, :]
    else:
        if NORM:
            total = tl.zeros((ROWS,), tl.float32)
            for start in tl.static_range(0, K, CHUNK):
                at = start + tl.arange(0, CHUNK)
                x_in = row_in[:, None] & (at < K)[None, :]
                total += tl.sum(tl.load(x_ptr + row[:, None] * K + at[None, :], mask=x_in, other=0.0).to(tl.float32), 1)
            mean = total / K
            squares = tl.zeros((ROWS,), tl.float32)
            for start in tl.static_range(0, K, CHUNK):
                at = start + tl.arange(0, CHUNK)
                x_in = row_in[:, None] & (at < K)[None, :]
                x = tl.load(x_ptr + row[:, None] * K + at[None, :], mask=x_in, other=0.0).to(tl.float32)
                centred = tl.where(x_in, x - mean[:, None], 0.0)
                squares += tl.sum(centred * centred, 1)
            rstd = 1.0 / tl.sqrt_rn(squares / K + eps)
        y = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, K, CHUNK):
            at = start + tl.arange(0, CHUNK)
            at_in = at < K
            x_in = row_in[:, None] & at_in[None, :]
            w = tl.load(w_ptr + column[:, None] * K + at[None, :], mask=column_in[:, None] & at_in[None, :], other=0.0)
            x = tl.load(x_ptr + row[:, None] * K + at[None, :], mask=x_in, other=0.0).to(tl.float32)
            if NORM:
                norm_w = tl.load(norm_w_ptr + at, mask=at_in, other=0.0).to(tl.float32)
                norm_b = tl.load(norm_b_ptr + at, mask=at_in, other=0.0).to(tl.float32)
                x = (x - mean[:, None]) * rstd[:, None] * norm_w[None, :] + norm_b[None, :]
            if SCALED:
                w = w.to(scale_ptr.dtype.element_ty)
            y = tl.dot(x.to(w.dtype), tl.trans(w), y, input_precision="ieee")
    if SCALED:
        y *= tl.load(scale_ptr + column, mask=column_in, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        y += tl.load(bias_ptr + column, mask=column_in, other=0.0).to(tl.float32)[None, :]
    if GELU:
        y = gelu_of(y)
    inside = row_in[:, None] & column_in[None, :]
    if HEAD:
        width = columns // 3
        part = column // width
        within = column - part * width
        tl.store(
            y_ptr + row[:, None] * width + within[None, :],
            y.to(y_ptr.dtype.element_ty),
            mask=inside & (part == 0)[None, :],
        )
        slot = tl.load(newest_ptr)
        # In 64 bits: caches of many long rows pass 2^31 elements.
        place = (row.to(tl.int64)[:, None] * (width // HEAD) + (within // HEAD)[None, :]) * slots + slot
        place = place * HEAD + (within % HEAD)[None, :]
        kept = y.to(keys_ptr.dtype.element_ty)
        tl.store(keys_ptr + place, kept, mask=inside & (part == 1)[None, :])
        tl.store(values_ptr + place, kept, mask=inside & (part == 2)[None, :])
    else:
        at_y = y_ptr + row[:, None] * columns + column[None, :]
        if ADD:
            y += tl.load(at_y, mask=inside, other=0.0).to(tl.float32)
        tl.store(at_y, y.to(y_ptr.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Weights of a linear layer, and of the LayerNorm before it, as the kernel reads them."""

    weight: Tensor
    """(N, K), contiguous."""
    scale: Tensor | None = None
    """(N,), with an int8 ``weight``."""
    bias: Tensor | None = None
    """(N,)."""
    norm: tuple[Tensor, Tensor, float] | None = None
    """Weight (K,), bias (K,) and epsilon of a LayerNorm over K."""

    def __post_init__(self) -> None:
        """Raises:
        ValueError: a shape, layout or dtype that the kernel does not take; the message gives both sides.
        """
        if self.weight.ndim != 2 or not self.weight.is_contiguous():
            raise ValueError(
                f"weight is {tuple(self.weight.shape)} with strides {self.weight.stride()}; it must be a contiguous "
                "matrix (outputs, inputs)"
            )
        if (self.scale is not None) != (self.weight.element_size() == 1):
            raise ValueError(f"weight is {self.weight.dtype}; with a scale it must be int8, without one it must not")
        outputs, inputs = self.weight.shape
        norm = (None, None) if self.norm is None else self.norm[:2]
        for name, vector, size in (
            ("scale", self.scale, outputs),
            ("bias", self.bias, outputs),
            ("norm's weight", norm[0], inputs),
            ("norm's bias", norm[1], inputs),
        ):
            if vector is None:
                continue
            if vector.shape != (size,) or not vector.is_contiguous():
                raise ValueError(
                    f"{name} is {tuple(vector.shape)}; weight of {tuple(self.weight.shape)} needs ({size},)"
                )
            if vector.dtype not in DTYPES:
                raise ValueError(f"{name} is {vector.dtype}; allowed: {', '.join(str(d) for d in DTYPES)}")


def _chunk(inputs: int, largest: int) -> int:
    """Inputs that a program takes at a time: all the same number where that is possible, at most ``largest``."""
    chunk = largest
    while inputs % chunk and chunk > 64:
        chunk //= 2
    return chunk if inputs % chunk == 0 else min(largest, max(16, triton.next_power_of_2(inputs)))


def _launch(
    x: Tensor, linear: Linear, y: Tensor, *, gelu: bool = False, add: bool = False,
    keys: Tensor | None = None, values: Tensor | None = None, newest: Tensor | None = None,
) -> None:  # fmt: skip
    check(x, "x")
    outputs, inputs = linear.weight.shape
    if x.ndim != 2 or x.shape[1] != inputs or not x.is_contiguous():
        raise ValueError(
            f"x is {tuple(x.shape)}; weight of {tuple(linear.weight.shape)} needs contiguous ({inputs},) rows"
        )
    rows = len(x)
    height = 1 if rows == 1 else 16 if rows <= 16 else _MOST_ROWS
    narrow = 1 if rows == 1 else 16  # what tl.dot takes at least
    width = narrow
    while 2 * width <= _MOST_COLUMNS and triton.cdiv(outputs, 2 * width) >= _PROGRAMS:
        width *= 2
    chunk = _chunk(inputs, 512 if rows == 1 and width <= 8 else 256)
    norm_w, norm_b, eps = (x, x, 0.0) if linear.norm is None else linear.norm
    scale, bias = x if linear.scale is None else linear.scale, x if linear.bias is None else linear.bias
    slots, head = (0, 0) if keys is None else keys.shape[2:]
    # What a call has no use for is given some pointer, which is not read.
    caches = [y if tensor is None else tensor for tensor in (keys, values, newest)]
    run(
        _linear, (triton.cdiv(outputs, width), triton.cdiv(rows, height)), x,
        x, linear.weight, scale, bias, norm_w, norm_b, y, *caches, rows, outputs, slots, eps, K=inputs,
        SCALED=linear.scale is not None, BIAS=linear.bias is not None, NORM=linear.norm is not None, GELU=gelu, ADD=add,
        HEAD=head, ROWS=height, COLUMNS=width, CHUNK=chunk, WHOLE=triton.next_power_of_2(inputs),
        num_warps=4, num_stages=3,
    )  # fmt: skip


def decode_linear(x: Tensor, linear: Linear, y: Tensor, *, gelu: bool = False, add: bool = False) -> None:
    """Fill ``y`` (M, N) with ``linear`` of ``x`` (M, K), through the tanh GeLU if ``gelu``; ``add`` it instead.

    Both contiguous, of any of the kernels' dtypes. Never synchronises.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    check(y, "y")
    if y.shape != (len(x), len(linear.weight)) or not y.is_contiguous():
        raise ValueError(f"y is {tuple(y.shape)}; it must be contiguous and ({len(x)}, {len(linear.weight)})")
    _launch(x, linear, y, gelu=gelu, add=add)


def decode_qkv(x: Tensor, linear: Linear, queries: Tensor, keys: Tensor, values: Tensor, newest: Tensor) -> None:
    """As ``decode_linear``, for outputs that are queries, keys and values, N = 3 H D.

    Fills ``queries`` (M, H D), and slot ``newest`` (int64, one number) of ``keys`` and ``values`` (M, H, S, D).

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    width = len(linear.weight) // 3
    if queries.shape != (len(x), width) or not queries.is_contiguous():
        raise ValueError(f"queries is {tuple(queries.shape)}; it must be contiguous and ({len(x)}, {width})")
    for name, cache in (("keys", keys), ("values", values)):
        shape = tuple(cache.shape)
        if cache.ndim != 4 or not cache.is_contiguous() or shape[0] != len(x) or shape[1] * shape[3] != width:
            raise ValueError(f"{name} is {shape}; queries of {tuple(queries.shape)} need contiguous (M, H, S, D)")
    _launch(x, linear, queries, keys=keys, values=values, newest=newest)
