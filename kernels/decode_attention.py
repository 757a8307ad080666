"""Attention of one new token a row over a cache of fixed size, of which it sees the slots that hold its text.

    y = softmax(q K^T / sqrt(D)) V        q (B, H, 1, D), K and V (B, H, S, D)

Row i sees slots below lengths[i] (its prompt) and from ``start`` to ``newest`` (its new tokens): what lies between is
empty, what lies beyond is not written yet. ``newest`` is read on the device, so one launch, recorded once, serves
every length; slots beyond it are not even read. 2 B H n D e bytes for n slots seen, 4 FLOP each: bound by memory and,
at short texts, by latency, so a program takes a whole head and keeps keys and values of a block in flight together.

Online softmax in base 2; all arithmetic and sums in float32.

Source: Milakov and Gimelshein 2018, arXiv:1805.02867.
"""

from __future__ import annotations

import math

from torch import Tensor

from explorer.kernels.launch import check, run, tl, triton


@triton.jit(repr=lambda specialization: "decode_attention")
def _attend(
    q_ptr, keys_ptr, values_ptr, lengths_ptr, start_ptr, newest_ptr, y_ptr, scale, heads, slots,
    HEAD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    d = tl.arange(0, WIDE)
    d_in = d < HEAD
    length = tl.load(lengths_ptr + head // heads)
    start = tl.load(start_ptr)
    newest = tl.load(newest_ptr)
    q = tl.load(q_ptr + head * HEAD + d, mask=d_in, other=0.0).to(tl.float32) * scale
    # In 64 bits: caches of many long rows pass 2^31 elements.
    base = head.to(tl.int64) * slots * HEAD
    largest = -float("inf")
    total = 0.0
    y = tl.zeros((WIDE,), tl.float32)
    for first in range(0, newest + 1, BLOCK):
        slot = first + tl.arange(0, BLOCK)
        at = base + slot[:, None] * HEAD + d[None, :]
        written = (slot <= newest)[:, None] & d_in[None, :]
        k = tl.load(keys_ptr + at, mask=written, other=0.0).to(tl.float32)
        v = tl.load(values_ptr + at, mask=written, other=0.0).to(tl.float32)
        seen = (slot < length) | ((slot >= start) & (slot <= newest))
        score = tl.where(seen, tl.sum(k * q[None, :], 1), -float("inf"))
        # Slot 0 is always seen, so from the first block on this is finite.
        next_largest = tl.maximum(largest, tl.max(score, 0))
        weight = tl.exp2(score - next_largest)
        shrink = tl.exp2(largest - next_largest)
        total = total * shrink + tl.sum(weight, 0)
        y = y * shrink + tl.sum(weight[:, None] * v, 0)
        largest = next_largest
    tl.store(y_ptr + head * HEAD + d, (y / total).to(y_ptr.dtype.element_ty), mask=d_in)


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, start: Tensor, newest: Tensor, y: Tensor
) -> None:
    """Fill ``y`` (B, H D) with attention of ``q`` (B, H D) over ``keys`` and ``values`` (B, H, S, D), all contiguous.

    ``lengths`` (B,), ``start`` (1,) and ``newest`` (1,): int64, on the device; see above. Never synchronises.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    check(q, "q")
    batch, heads, slots, size = keys.shape
    for name, tensor, shape in (
        ("q", q, (batch, heads * size)), ("y", y, (batch, heads * size)), ("values", values, tuple(keys.shape)),
        ("keys", keys, tuple(keys.shape)), ("lengths", lengths, (batch,)),
    ):  # fmt: skip
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} is {tuple(tensor.shape)}; keys of {tuple(keys.shape)} need contiguous {shape}")
    wide = triton.next_power_of_2(size)
    run(
        _attend, (batch * heads,), q, q, keys, values, lengths, start, newest, y,
        size**-0.5 * math.log2(math.e), heads, slots, HEAD=size, WIDE=wide, BLOCK=128, num_warps=8,
    )  # fmt: skip
