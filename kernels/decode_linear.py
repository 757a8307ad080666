"""A linear layer on the few rows of a decoding step, with what lies around it in a Transformer.

    y = act(norm(x) W^T s + b),   or   y += x W^T s + b          x (M, K), W (N, K), y (M, N)

norm is LayerNorm or nothing, act the tanh GeLU or nothing, s a scale an output where W is int8, else nothing. For
queries, keys and values the outputs go three ways instead: queries to y, keys and values into their slot of a cache.

At M rows the weights are read once, N K e bytes, for 2 M N K FLOP: at M = 32 in 16 bits still only 32 FLOP a byte, so
reading them, and how long it takes until the last one is there, is all that matters. W lies with its inputs together
(N, K): a row of it is one stretch of memory for one output.

One row: a program has some outputs and all of K, and norms the row itself, from the cache, which spares a kernel and
its launch. Its weights it holds in registers before it waits for the kernel ahead. Products and sums in float32,
without rounding in between.

More rows: norms are a kernel of their own (``decode_residual``), since each program would read all rows. A program has
some outputs and a share of K on tensor cores, in the weights' format (int8 in that of s), accumulated in float32;
float32 itself without TF32, each chunk of K summed by itself. What shares of K add up to, ``decode_residual`` sums,
always in the same order.

Source: CUTLASS, efficient GEMM (split K); CUDA programming guide, programmatic dependent launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from explorer.kernels.decode_residual import Norm, decode_residual
from explorer.kernels.gelu import gelu_of
from explorer.kernels.launch import DTYPES, check, dependent, run, tl, triton

_PROGRAMS = 132
"""At least so many, where there are outputs enough: one for each processor of an H200."""
_HELD_BYTES = 32 << 10

_CAST = "cast"
"""How int8 weights become float32 at one row: see ``_floats``."""


@triton.jit
def _floats(w, CAST: tl.constexpr):
    """int8 ``w`` as float32, exactly.

    cast: the instruction for it (I2F), of which a processor of compute capability 9.0 does 16 a clock. The others put
    the number among the low bits of a float32 so large that these count ones, and take that float32 away again: add by
    an addition to 1.5 * 2^23; bytes by a permutation of bytes with 2^23, after a change of sign of four numbers at once
    (not in the interpreter). Both are instructions of 64 a clock and more.

    Source: CUDA programming guide, throughput of native arithmetic instructions; Kim et al. 2022, arXiv:2211.10017.
    """
    if CAST == "add":
        return (w.to(tl.int32) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0
    if CAST == "bytes":
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 w, f;
            xor.b32 w, $4, 0x80808080;
            prmt.b32 f, w, 0x4B000000, 0x7440; sub.f32 $0, f, 0f4B000080;
            prmt.b32 f, w, 0x4B000000, 0x7441; sub.f32 $1, f, 0f4B000080;
            prmt.b32 f, w, 0x4B000000, 0x7442; sub.f32 $2, f, 0f4B000080;
            prmt.b32 f, w, 0x4B000000, 0x7443; sub.f32 $3, f, 0f4B000080;
            }""",
            "=f,=f,=f,=f,r", [w], dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    return w.to(tl.float32)


@triton.jit
def _end(
    y, offset, before, slot, inside, row, column, y_ptr, keys_ptr, values_ptr, columns, slots,
    BIAS: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """What happens to sums ``y`` (rows, columns) after the product, ``offset`` (columns,) added, ``before`` if ADD.
    HEAD: numbers a head where keys and values go into ``slot`` of caches (B, heads, slots, HEAD), else 0."""
    if BIAS:
        y += offset[None, :]
    if GELU:
        y = gelu_of(y)
    if HEAD:
        width = columns // 3
        part = column // width
        within = column - part * width
        tl.store(
            y_ptr + row[:, None] * width + within[None, :],
            y.to(y_ptr.dtype.element_ty),
            mask=inside & (part == 0)[None, :],
        )
        # In 64 bits: caches of many long rows pass 2^31 elements.
        place = (row.to(tl.int64)[:, None] * (width // HEAD) + (within // HEAD)[None, :]) * slots + slot
        place = place * HEAD + (within % HEAD)[None, :]
        kept = y.to(keys_ptr.dtype.element_ty)
        tl.store(keys_ptr + place, kept, mask=inside & (part == 1)[None, :])
        tl.store(values_ptr + place, kept, mask=inside & (part == 2)[None, :])
    else:
        if ADD:
            y += before
        tl.store(y_ptr + row[:, None] * columns + column[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=lambda specialization: "decode_linear")
def _one_row(
    x_ptr, w_ptr, scale_ptr, bias_ptr, norm_w_ptr, norm_b_ptr, y_ptr, keys_ptr, values_ptr, newest_ptr,
    columns, slots, eps, K: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr, NORM: tl.constexpr,
    GELU: tl.constexpr, ADD: tl.constexpr, HEAD: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
    EARLY: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column_in = column < columns
    at = tl.arange(0, WHOLE)
    at_in = at < K
    w = tl.load(w_ptr + column[:, None] * K + at[None, :], mask=column_in[:, None] & at_in[None, :], other=0.0)
    # What a token does not change is read before the wait; newest was written before the token: see decode_embedding.
    if NORM:
        norm_w = tl.load(norm_w_ptr + at, mask=at_in, other=0.0).to(tl.float32)
        norm_b = tl.load(norm_b_ptr + at, mask=at_in, other=0.0).to(tl.float32)
    scale, offset, slot, before = 1.0, 0.0, 0, 0.0
    if SCALED:
        scale = tl.load(scale_ptr + column, mask=column_in, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        offset = tl.load(bias_ptr + column, mask=column_in, other=0.0).to(tl.float32)
    if HEAD:
        slot = tl.load(newest_ptr)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    row = tl.arange(0, 1)
    inside = (row < 1)[:, None] & column_in[None, :]
    if ADD:
        before = tl.load(y_ptr + row[:, None] + column[None, :], mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + at, mask=at_in, other=0.0).to(tl.float32)
    if NORM:
        mean = tl.sum(x, 0) / K
        centred = tl.where(at_in, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 0) / K + eps)
        x = centred * rstd * norm_w + norm_b
    w = _floats(w, CAST) if SCALED else w.to(tl.float32)
    y = tl.sum(w * x[None, :], 1)[None, :]
    _end(
        y * scale, offset, before, slot, inside, row, column, y_ptr, keys_ptr, values_ptr, columns, slots,
        BIAS, GELU, ADD, HEAD,
    )  # fmt: skip


@triton.jit
def _dot(x, w, y):
    """``y`` + x w. float32's is no tensor core's but one chain of additions, whose roundings add up: over 320 inputs to
    3.7e-6 where torch's came to 1.1e-6. So a chunk's chain begins at 0, and is added by an fma, which the compiler does
    not take for the product's own accumulator as it does an addition."""
    if w.dtype == tl.float32:
        return tl.fma(tl.dot(x, w, input_precision="ieee"), 1.0, y)
    return tl.dot(x, w, y)


@triton.jit(repr=lambda specialization: "decode_linear")
def _rows(
    x_ptr, w_ptr, scale_ptr, bias_ptr, y_ptr, keys_ptr, values_ptr, newest_ptr, rows, columns, slots,
    K: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr, GELU: tl.constexpr, HEAD: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr, SHARE: tl.constexpr,
    LINE: tl.constexpr, LINES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row_in, column_in = row < rows, column < columns
    share = tl.program_id(2)
    first = share * SHARE
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        # Weights do not change: on their way to the L2 cache, a line of LINE of them each, while the kernel ahead ends.
        line = tl.minimum(first + tl.arange(0, LINES) * LINE, K - 1)
        line = w_ptr + tl.minimum(column, columns - 1)[:, None] * K + line[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [line], dtype=tl.int32, is_pure=False, pack=1
        )
    scale, offset, slot = 1.0, 0.0, 0
    if SCALED:
        scale = tl.load(scale_ptr + column, mask=column_in, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        offset = tl.load(bias_ptr + column, mask=column_in, other=0.0).to(tl.float32)
    if HEAD:
        slot = tl.load(newest_ptr)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    # Two sums side by side: a product on tensor cores waits for the one before it with the same sum.
    y = tl.zeros((ROWS, COLUMNS), tl.float32)
    z = tl.zeros((ROWS, COLUMNS), tl.float32)
    at_x = x_ptr + row[:, None] * K + first
    at_w = w_ptr + column[:, None] * K + first
    for start in range(0, SHARE, 2 * CHUNK):
        at = start + tl.arange(0, CHUNK)
        at_in = first + at < K
        x = tl.load(at_x + at[None, :], mask=row_in[:, None] & at_in[None, :], other=0.0)
        w = tl.load(at_w + at[None, :], mask=column_in[:, None] & at_in[None, :], other=0.0)
        if SCALED:
            w = w.to(scale_ptr.dtype.element_ty)
        y = _dot(x.to(w.dtype), tl.trans(w), y)
        at += CHUNK
        at_in = first + at < K
        x = tl.load(at_x + at[None, :], mask=row_in[:, None] & at_in[None, :], other=0.0)
        w = tl.load(at_w + at[None, :], mask=column_in[:, None] & at_in[None, :], other=0.0)
        if SCALED:
            w = w.to(scale_ptr.dtype.element_ty)
        z = _dot(x.to(w.dtype), tl.trans(w), z)
    # Each share of K has its own y.
    _end(
        (y + z) * scale, offset, 0.0, slot, row_in[:, None] & column_in[None, :], row, column,
        y_ptr + share * rows * columns, keys_ptr, values_ptr, columns, slots, BIAS, GELU, False, HEAD,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Weights of a linear layer, and of the LayerNorm before it, as the kernel reads them."""

    weight: Tensor
    """(N, K), contiguous."""
    scale: Tensor | None = None
    """(N,), with an int8 ``weight``."""
    bias: Tensor | None = None
    """(N,)."""
    norm: Norm | None = None

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

    @property
    def dtype(self) -> torch.dtype:
        """What several rows are multiplied in."""
        return self.weight.dtype if self.scale is None else self.scale.dtype

    def shares(self, rows: int) -> int:
        """Parts that ``decode_parts`` makes of ``rows``."""
        outputs, inputs = self.weight.shape
        return _rows_tiles(rows, outputs, inputs, self.weight.element_size(), parts=True).shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How a product is shared among programs."""

    rows: int
    columns: int
    """Outputs a program."""
    chunk: int = 0
    """Inputs that one product on tensor cores takes; two of them are under way together."""
    shares: int = 1
    """Parts of K that are summed apart."""
    warps: int = 4
    stages: int = 3


# By (outputs, inputs) of GPT-2 124M: the fastest of those tried, by whole tokens in a replayed graph with bf16 weights,
# each beside the ones above it (one NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0; 97 slots seen). In brackets
# microseconds a token, first with these tiles and then with the rule's below, which all others keep to.
_MEASURED_ONE_ROW = {
    (2304, 768): Tiles(rows=1, columns=32, warps=8),  # queries, keys and values (176.9, 180.1)
    (768, 768): Tiles(rows=1, columns=8),  # projection (176.5, 176.9)
    (3072, 768): Tiles(rows=1, columns=16, warps=8),  # up (170.0, 176.5)
    (768, 3072): Tiles(rows=1, columns=2),  # down (163.7, 170.0)
}
_MEASURED_ROWS = {
    (2304, 768): Tiles(rows=16, columns=32, chunk=128),  # queries, keys and values (393.5, 408.6)
    (50257, 768): Tiles(rows=32, columns=128, chunk=64, warps=8),  # head (392.1, 393.2)
}
"""At 32 rows, and taken from 17 on; not for float32, which was not tried."""


def _one_row_tiles(outputs: int, inputs: int, element_bytes: int) -> Tiles:
    """By the rule a program holds its weights, at most ``_HELD_BYTES``, in registers."""
    measured = _MEASURED_ONE_ROW.get((outputs, inputs))
    if measured is not None:
        return measured
    whole_bytes = triton.next_power_of_2(inputs) * element_bytes
    columns = 1
    while 2 * columns * whole_bytes <= _HELD_BYTES and triton.cdiv(outputs, 2 * columns) >= _PROGRAMS:
        columns *= 2
    return Tiles(rows=1, columns=columns)


def _rows_tiles(rows: int, outputs: int, inputs: int, element_bytes: int, *, parts: bool) -> Tiles:
    """``parts``: whether K may be shared among programs."""
    measured = _MEASURED_ROWS.get((outputs, inputs))
    if measured is not None and rows > 16 and element_bytes <= 2:
        return measured
    columns = 16
    while columns < 64 and triton.cdiv(outputs, 2 * columns) >= _PROGRAMS:
        columns *= 2
    chunk = 64 if element_bytes == 4 else 128
    shares = 1
    if parts:
        while triton.cdiv(outputs, columns) * 2 * shares <= 2 * _PROGRAMS and inputs >= 4 * chunk * shares:
            shares *= 2
    return Tiles(rows=16 if rows <= 16 else 32, columns=columns, chunk=chunk, shares=shares)


def _caches(y: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """What a call has no use for is given some pointer, which is not read."""
    return [y if tensor is None else tensor for tensor in tensors]


def _launch(
    x: Tensor, linear: Linear, y: Tensor, *, gelu: bool = False, add: bool = False,
    keys: Tensor | None = None, values: Tensor | None = None, newest: Tensor | None = None,
) -> None:  # fmt: skip
    check(x, "x")
    rows = len(x)
    outputs, inputs = linear.weight.shape
    if x.ndim != 2 or x.shape[1] != inputs or not x.is_contiguous():
        raise ValueError(
            f"x is {tuple(x.shape)}; weight of {tuple(linear.weight.shape)} needs contiguous ({inputs},) rows"
        )
    if rows > 1:
        if linear.norm is not None:
            normed = torch.empty_like(x, dtype=linear.dtype)
            decode_residual(x, None, None, linear.norm, normed)
            x = normed
        if add:
            parts = torch.empty(linear.shares(rows), rows, outputs, dtype=torch.float32, device=x.device)
            decode_parts(x, linear, parts)
            decode_residual(y, parts, linear.bias, None, None)
            return
        _launch_rows(x, linear, y, gelu=gelu, keys=keys, values=values, newest=newest)
        return
    tiles, early = _one_row_tiles(outputs, inputs, linear.weight.element_size()), dependent(x)
    norm_w, norm_b, eps = (x, x, 0.0) if linear.norm is None else linear.norm
    scale, bias = _caches(x, linear.scale, linear.bias)
    slots, head = (0, 0) if keys is None else keys.shape[2:]
    run(
        _one_row, (triton.cdiv(outputs, tiles.columns),), x,
        x, linear.weight, scale, bias, norm_w, norm_b, y, *_caches(y, keys, values, newest), outputs, slots, eps,
        K=inputs, SCALED=linear.scale is not None, BIAS=linear.bias is not None, NORM=linear.norm is not None,
        GELU=gelu, ADD=add, HEAD=head, COLUMNS=tiles.columns, WHOLE=triton.next_power_of_2(inputs), EARLY=early,
        CAST=_CAST, num_warps=tiles.warps, launch_pdl=early,
    )  # fmt: skip


def _launch_rows(
    x: Tensor, linear: Linear, y: Tensor, *, gelu: bool = False, bias: bool = True, tiles: Tiles | None = None,
    keys: Tensor | None = None, values: Tensor | None = None, newest: Tensor | None = None,
) -> None:  # fmt: skip
    rows = len(x)
    outputs, inputs = linear.weight.shape
    element_bytes = linear.weight.element_size()
    # Not in float32, whose products are bound by arithmetic: a token of GPT-2 124M at 32 rows took 2,941 us without and
    # 4,506 with all kernels launched so (one NVIDIA H200, triton 3.6.0). What waits there takes room from what runs.
    early = dependent(x) and linear.dtype != torch.float32
    if tiles is None:
        tiles = _rows_tiles(rows, outputs, inputs, element_bytes, parts=False)
    share = triton.cdiv(inputs, 2 * tiles.chunk * tiles.shares) * 2 * tiles.chunk
    line = 128 // element_bytes
    scale, offsets = _caches(x, linear.scale, linear.bias)
    slots, head = (0, 0) if keys is None else keys.shape[2:]
    run(
        _rows, (triton.cdiv(outputs, tiles.columns), triton.cdiv(rows, tiles.rows), tiles.shares), x,
        x, linear.weight, scale, offsets, y, *_caches(y, keys, values, newest), rows, outputs, slots,
        K=inputs, SCALED=linear.scale is not None, BIAS=bias and linear.bias is not None, GELU=gelu, HEAD=head,
        ROWS=tiles.rows, COLUMNS=tiles.columns, CHUNK=tiles.chunk, SHARE=share,
        LINE=line, LINES=triton.next_power_of_2(triton.cdiv(min(share, inputs), line)), EARLY=early,
        num_warps=tiles.warps, num_stages=tiles.stages, launch_pdl=early,
    )  # fmt: skip


def decode_parts(x: Tensor, linear: Linear, parts: Tensor) -> None:
    """Fill ``parts`` (P, M, N), float32, whose sum is x W^T s, without the bias; P = ``linear.shares(M)``.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    rows, (outputs, inputs) = len(x), linear.weight.shape
    tiles = _rows_tiles(rows, outputs, inputs, linear.weight.element_size(), parts=True)
    if parts.shape != (tiles.shares, rows, outputs) or parts.dtype != torch.float32 or not parts.is_contiguous():
        raise ValueError(
            f"parts is {tuple(parts.shape)}; {rows} rows need contiguous float32 {(tiles.shares, rows, outputs)}"
        )
    _launch_rows(x, linear, parts, bias=False, tiles=tiles)


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
