"""Attention of one new token a row over a cache of fixed size, of which it sees the slots that hold its text.

    y = softmax(q K^T / sqrt(D)) V        q (B, H, 1, D), K and V (B, H, S, D)

Row i sees slots below lengths[i] (its prompt) and from ``start`` to ``newest`` (its new tokens): what lies between is
empty, what lies beyond is not written yet. ``newest`` is read on the device, so one launch, recorded once, serves
every length; slots beyond it are not even read. 2 B H n D e bytes for n slots seen and 4 B H n D FLOP: bound by memory
and, at short texts, by latency, so a program takes a whole head and keeps keys and values of a block in flight
together, the first block from before the kernel ahead has made the newest slot.

Online softmax in base 2; all arithmetic and sums in float32.

Source: Milakov and Gimelshein 2018, arXiv:1805.02867.
"""

from __future__ import annotations

import math

from torch import Tensor

from explorer.kernels.launch import check, dependent, run, tl, triton

_BLOCK = 128
"""Slots that are looked at together."""
_FEW_PROGRAMS = 132
"""Up to one for each processor of an H200 each is given 8 warps, beyond that 4.

Microseconds a token of GPT-2 124M in a replayed graph with 97 slots seen (one NVIDIA H200, torch 2.11.0+cu130, triton
3.6.0), at one row (12 programs) 163.7 with 8 warps and 164.4 with 4; at 32 rows (384) 392.1 and 377.4. With 64 slots
together, 8 and 4 warps: 179.4 and 176.7, 427.3 and 449.7; with 32 and 4: 187.0 and 476.8."""


@triton.jit(repr=lambda specialization: "decode_attention")
def _attend(
    q_ptr, keys_ptr, values_ptr, lengths_ptr, start_ptr, newest_ptr, y_ptr, scale, heads, slots,
    HEAD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    head = tl.program_id(0)
    d = tl.arange(0, WIDE)
    d_in = d < HEAD
    # Written before this token, and so before the wait: see decode_embedding.
    length = tl.load(lengths_ptr + head // heads)
    start = tl.load(start_ptr)
    newest = tl.load(newest_ptr).to(tl.int32)
    # In 64 bits: caches of many long rows pass 2^31 elements.
    base = head.to(tl.int64) * slots * HEAD
    slot = tl.arange(0, BLOCK)
    at = base + slot[:, None] * HEAD + d[None, :]
    older = (slot < newest)[:, None] & d_in[None, :]
    k = tl.load(keys_ptr + at, mask=older, other=0.0)
    v = tl.load(values_ptr + at, mask=older, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    q = tl.load(q_ptr + head * HEAD + d, mask=d_in, other=0.0).to(tl.float32) * scale
    # The newest slot is always seen. Past the first-level cache, to which its neighbours may have brought it too early.
    at_newest = base + newest * HEAD + d
    newest_k = tl.load(keys_ptr + at_newest, mask=d_in, other=0.0, cache_modifier=".cg").to(tl.float32)
    newest_v = tl.load(values_ptr + at_newest, mask=d_in, other=0.0, cache_modifier=".cg").to(tl.float32)
    largest = tl.sum(q * newest_k, 0)
    total = 1.0
    y = newest_v
    for first in range(0, newest, BLOCK):
        slot = first + tl.arange(0, BLOCK)
        seen = (slot < newest) & ((slot < length) | (slot >= start))
        score = tl.where(seen, tl.sum(k.to(tl.float32) * q[None, :], 1), -float("inf"))
        next_largest = tl.maximum(largest, tl.max(score, 0))
        weight = tl.exp2(score - next_largest)
        shrink = tl.exp2(largest - next_largest)
        total = total * shrink + tl.sum(weight, 0)
        y = y * shrink + tl.sum(weight[:, None] * v.to(tl.float32), 0)
        largest = next_largest
        following = slot + BLOCK
        at = base + following[:, None] * HEAD + d[None, :]
        older = (following < newest)[:, None] & d_in[None, :]
        k = tl.load(keys_ptr + at, mask=older, other=0.0)
        v = tl.load(values_ptr + at, mask=older, other=0.0)
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
    wide, early = triton.next_power_of_2(size), dependent(q)
    programs = batch * heads
    run(
        _attend, (programs,), q, q, keys, values, lengths, start, newest, y,
        size**-0.5 * math.log2(math.e), heads, slots, HEAD=size, WIDE=wide, BLOCK=_BLOCK, EARLY=early,
        num_warps=8 if programs <= _FEW_PROGRAMS else 4, launch_pdl=early,
    )  # fmt: skip
