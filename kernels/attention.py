"""Causal self-attention without the T x T matrix: the FlashAttention-2 algorithm, forward and backward.

    s_ij = scale q_i . k_j for j <= i,  lse_i = log sum_j exp(s_ij),  p_ij = exp(s_ij - lse_i),  o_i = sum_j p_ij v_j
    dv_j = sum_i p_ij do_i,   delta_i = do_i . o_i,   ds_ij = p_ij (do_i . v_j - delta_i)
    dq_i = scale sum_j ds_ij k_j    dk_j = scale sum_i ds_ij q_i

B sequences, H heads, T tokens, D numbers a head. Shapes: q, k, v, o are (B, H, T, D); lse and delta (B, H, T).

Forward: a program holds one block of queries and walks along the keys up to the diagonal. It keeps, for each query,
the largest score so far, the sum of exponentials around it, and the output so far; when a larger score comes, the
old sums are scaled down to it. So each block of scores lives in registers only.
Backward: the scores are computed anew from q, k and lse. One kernel holds a block of keys and walks along the
queries from the diagonal on (dk, dv); another holds a block of queries and walks along the keys (dq). That is one
product more than a single kernel with atomic additions would need, and gives the same bits every time.

    forward    4 B H T^2 D / 2 FLOP in matrix products; at least 4 B H T D e bytes, with e bytes an element
    backward  14 B H T^2 D / 2 FLOP (3 products for dq, 4 for dk and dv); at least 10 B H T D e bytes
Scores, exponentials, their sums and all outputs are accumulated in float32; p and ds are rounded to the dtype of the
inputs for their products, which float32 does in full precision (no TF32). Saved: q, k, v, o and lse.

Source: Dao 2023 (FlashAttention-2), algorithms 1 and 2; Triton's tutorial 06 for the two-sided loop.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from explorer.kernels.launch import check, run, tl, triton

_LOG2E = math.log2(math.e)

# By head size, for two-byte and for four-byte numbers: what the program holds, what it walks along, warps, stages.
# On sm_90 four warps are one tensor-core group, which multiplies 64 rows at a time; chosen so that the float32
# sums stay in registers (ptxas: no spills) and the stages in 227 KiB of shared memory. In float32 without TF32
# there is no tensor core to feed, and the blocks are as small as they can be.
_FORWARD = {2: {16: (128, 64, 4, 3), 32: (128, 64, 4, 3), 64: (128, 64, 4, 3), 128: (128, 64, 8, 3)}}
_BACKWARD = {2: {16: (64, 64, 4, 3), 32: (64, 64, 4, 3), 64: (64, 64, 4, 3), 128: (64, 64, 8, 2)}}
_FORWARD[4] = _BACKWARD[4] = {16: (32, 32, 4, 2), 32: (32, 32, 4, 2), 64: (32, 32, 8, 2), 128: (32, 16, 8, 2)}


@triton.jit
def _addresses(ptr, start, stride, ROWS: tl.constexpr, D: tl.constexpr):
    # In 64 bits up to the first row, since T times the stride between tokens may pass 2^31; within the block, 32.
    at = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, D)[None, :]
    return ptr + tl.cast(start, tl.int64) * stride + at


@triton.jit
def _rows(ptr, start, stride, T, ROWS: tl.constexpr, D: tl.constexpr):
    """The ROWS rows from ``start`` on of a (T, D) matrix whose rows lie ``stride`` apart; zeros beyond T."""
    inside = (start + tl.arange(0, ROWS) < T)[:, None]
    return tl.load(_addresses(ptr, start, stride, ROWS, D), mask=inside, other=0.0)


@triton.jit
def _store_rows(ptr, start, stride, T, values, ROWS: tl.constexpr, D: tl.constexpr):
    inside = (start + tl.arange(0, ROWS) < T)[:, None]
    tl.store(_addresses(ptr, start, stride, ROWS, D), values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    acc, total, top, q, k_ptr, v_ptr, stride, row, first, last, T, scale,
    D: tl.constexpr, STEP: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Take in the keys from ``first`` up to ``last``: the output so far, its sum of exponentials, the largest score."""
    for start in range(first, last, STEP):
        key = start + tl.arange(0, STEP)
        k = _rows(k_ptr, start, stride, T, STEP, D)
        v = _rows(v_ptr, start, stride, T, STEP, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if DIAGONAL:
            s = tl.where(key[None, :] <= row[:, None], s, -float("inf"))
        # Finite from the first step on, since each query sees key 0.
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        top = higher
    return acc, total, top


# repr: the name in a profile, where it proves that this kernel ran.
@triton.jit(repr=lambda specialization: "attention_forward")
def _forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, in_b, in_h, in_t, out_b, out_h, out_t, H, T, scale,
    D: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    # The last blocks of queries see the most keys and go first, so that no long program starts late.
    blocks = tl.cdiv(T, HELD)
    begin = (blocks - 1 - tl.program_id(0) % blocks) * HELD
    head = (tl.program_id(0) // blocks).to(tl.int64)
    here_in = head // H * in_b + head % H * in_h
    row = begin + tl.arange(0, HELD)
    q = _rows(q_ptr + here_in, begin, in_t, T, HELD, D)
    acc = tl.zeros((HELD, D), tl.float32)
    total = tl.zeros((HELD,), tl.float32)
    top = tl.full((HELD,), -float("inf"), tl.float32)
    k_ptr += here_in
    v_ptr += here_in
    end = tl.minimum(begin + HELD, T)
    acc, total, top = _attend(acc, total, top, q, k_ptr, v_ptr, in_t, row, 0, begin, T, scale, D, STEP, False)
    acc, total, top = _attend(acc, total, top, q, k_ptr, v_ptr, in_t, row, begin, end, T, scale, D, STEP, True)
    tl.store(lse_ptr + head * T + row, top + tl.log2(total), mask=row < T)
    here_out = head // H * out_b + head % H * out_h
    _store_rows(o_ptr + here_out, begin, out_t, T, acc / total[:, None], HELD, D)


@triton.jit
def _query_gradient(
    dq, q, do, lse, delta, k_ptr, v_ptr, stride, row, first, last, T, scale,
    D: tl.constexpr, STEP: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Add what the keys from ``first`` up to ``last`` give to ``dq``."""
    for start in range(first, last, STEP):
        key = start + tl.arange(0, STEP)
        k = _rows(k_ptr, start, stride, T, STEP, D)
        v = _rows(v_ptr, start, stride, T, STEP, D)
        p = tl.exp2(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
        if DIAGONAL:
            p = tl.where(key[None, :] <= row[:, None], p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit(repr=lambda specialization: "attention_backward_queries")
def _backward_queries(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr,
    in_b, in_h, in_t, out_b, out_h, out_t, H, T, scale, scale_log2,
    D: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries, and on the way their delta, which the other kernel reads."""
    blocks = tl.cdiv(T, HELD)
    begin = (blocks - 1 - tl.program_id(0) % blocks) * HELD
    head = (tl.program_id(0) // blocks).to(tl.int64)
    here_in = head // H * in_b + head % H * in_h
    here_out = head // H * out_b + head % H * out_h
    row = begin + tl.arange(0, HELD)
    q = _rows(q_ptr + here_in, begin, in_t, T, HELD, D)
    do = _rows(do_ptr + here_out, begin, out_t, T, HELD, D)
    o = _rows(o_ptr + here_out, begin, out_t, T, HELD, D)
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(delta_ptr + head * T + row, delta, mask=row < T)
    lse = tl.load(lse_ptr + head * T + row, mask=row < T, other=0.0)
    k_ptr += here_in
    v_ptr += here_in
    end = tl.minimum(begin + HELD, T)
    dq = tl.zeros((HELD, D), tl.float32)
    dq = _query_gradient(dq, q, do, lse, delta, k_ptr, v_ptr, in_t, row, 0, begin, T, scale_log2, D, STEP, False)
    dq = _query_gradient(dq, q, do, lse, delta, k_ptr, v_ptr, in_t, row, begin, end, T, scale_log2, D, STEP, True)
    _store_rows(dq_ptr + here_out, begin, out_t, T, dq * scale, HELD, D)


@triton.jit
def _add_product(total, lost, a, b):
    """``total`` + a b, and in float32 what rounding has ``lost`` of it so far (Kahan 1965).

    A plain float32 sum over thousands of queries erred 3.4 times as much as torch's on an H200. In half precision the
    rounding of a and b is far larger than that of the sum, and ``lost`` stays as it is.
    """
    if a.dtype == tl.float32:
        more = tl.dot(a, b, input_precision="ieee") - lost
        higher = total + more
        lost = (higher - total) - more
    else:
        higher = tl.dot(a, b, total)
    return higher, lost


@triton.jit
def _key_gradients(
    dk, dv, lost_k, lost_v, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, in_t, out_t, key, first, last, T, scale,
    D: tl.constexpr, STEP: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Add what the queries from ``first`` up to ``last`` give to ``dk`` and ``dv``. Scores are held transposed."""
    for start in range(first, last, STEP):
        row = start + tl.arange(0, STEP)
        # Beyond T q, do and delta are 0, and with them all that is added.
        q = _rows(q_ptr, start, in_t, T, STEP, D)
        do = _rows(do_ptr, start, out_t, T, STEP, D)
        lse = tl.load(lse_ptr + row, mask=row < T, other=0.0)
        delta = tl.load(delta_ptr + row, mask=row < T, other=0.0)
        p = tl.exp2(tl.dot(k, tl.trans(q), input_precision="ieee") * scale - lse[None, :])
        if DIAGONAL:
            p = tl.where(key[:, None] <= row[None, :], p, 0.0)
        dv, lost_v = _add_product(dv, lost_v, p.to(do.dtype), do)
        ds = p * (tl.dot(v, tl.trans(do), input_precision="ieee") - delta[None, :])
        dk, lost_k = _add_product(dk, lost_k, ds.to(q.dtype), q)
    return dk, dv, lost_k, lost_v


@triton.jit(repr=lambda specialization: "attention_backward_keys")
def _backward_keys(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    in_b, in_h, in_t, out_b, out_h, out_t, H, T, scale, scale_log2,
    D: tl.constexpr, HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dk and dv of one block of keys; the first blocks, which most queries see, go first."""
    blocks = tl.cdiv(T, HELD)
    begin = tl.program_id(0) % blocks * HELD
    head = (tl.program_id(0) // blocks).to(tl.int64)
    here_in = head // H * in_b + head % H * in_h
    here_out = head // H * out_b + head % H * out_h
    key = begin + tl.arange(0, HELD)
    k = _rows(k_ptr + here_in, begin, in_t, T, HELD, D)
    v = _rows(v_ptr + here_in, begin, in_t, T, HELD, D)
    q_ptr += here_in
    do_ptr += here_out
    lse_ptr += head * T
    delta_ptr += head * T
    end = tl.minimum(begin + HELD, T)
    dk = tl.zeros((HELD, D), tl.float32)
    dv = tl.zeros((HELD, D), tl.float32)
    dk, dv, lost_k, lost_v = _key_gradients(
        dk, dv, dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, in_t, out_t, key, begin, end, T, scale_log2,
        D, STEP, True,
    )  # fmt: skip
    dk, dv, lost_k, lost_v = _key_gradients(
        dk, dv, lost_k, lost_v, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, in_t, out_t, key, end, T, T, scale_log2,
        D, STEP, False,
    )  # fmt: skip
    _store_rows(dk_ptr + here_out, begin, out_t, T, dk * scale, HELD, D)
    _store_rows(dv_ptr + here_out, begin, out_t, T, dv, HELD, D)


def _tokens_first(x: Tensor) -> Tensor:
    """An empty (B, H, T, D) laid out as (B, T, H, D): so a model that joins the heads again copies nothing."""
    B, H, T, D = x.shape
    return torch.empty((B, T, H, D), dtype=x.dtype, device=x.device).transpose(1, 2)


def _alike(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three with the same strides and the last 1: views of one projection, as GPT-2 has them, stay as they are."""
    if q.stride() == k.stride() == v.stride() and q.stride(3) == 1:
        return q, k, v
    return q.contiguous(), k.contiguous(), v.contiguous()


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """o, and lse / log(2)."""
    B, H, T, D = q.shape
    o = _tokens_first(q)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device)
    if q.numel():
        held, step, warps, stages = _FORWARD[q.element_size()][D]
        run(
            _forward, (triton.cdiv(T, held) * B * H,), q, q, k, v, o, lse, *q.stride()[:3], *o.stride()[:3], H, T,
            scale * _LOG2E, D=D, HELD=held, STEP=step, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return o, lse


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv."""
    B, H, T, D = q.shape
    dq, dk, dv = (_tokens_first(q) for _ in range(3))
    if not q.numel():
        return dq, dk, dv
    if do.stride() != o.stride():
        do = _tokens_first(do).copy_(do)
    delta = torch.empty_like(lse)
    held, step, warps, stages = _BACKWARD[q.element_size()][D]
    programs = (triton.cdiv(T, held) * B * H,)
    numbers = *q.stride()[:3], *o.stride()[:3], H, T, scale, scale * _LOG2E
    shape = {"D": D, "HELD": held, "STEP": step, "num_warps": warps, "num_stages": stages}
    run(_backward_queries, programs, q, q, k, v, o, do, lse, delta, dq, *numbers, **shape)
    run(_backward_keys, programs, q, q, k, v, do, lse, delta, dk, dv, *numbers, **shape)
    return dq, dk, dv


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        o, lse = _attention(q, k, v, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.scale = scale
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        return *_gradients(*ctx.saved_tensors, do, ctx.scale), None


# For torch.compile, which cannot look into a launch: to it, each way is one operator.
@torch.library.custom_op("explorer::causal_attention", mutates_args=())
def _operator(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return _attention(*_alike(q, k, v), scale)


@_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return _tokens_first(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("explorer::causal_attention_gradients", mutates_args=())
def _gradient_operator(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(*_alike(q, k, v), o, lse, do, scale)


@_gradient_operator.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _tokens_first(q), _tokens_first(q), _tokens_first(q)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)


def _differentiate(ctx: Any, do: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_gradient_operator(*ctx.saved_tensors, do, ctx.scale), None


_operator.register_autograd(_differentiate, setup_context=_keep)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """softmax(scale q k^T) v in which token i attends to tokens 0 to i; no dropout, no padding.

    ``q``, ``k``, ``v``: (B, H, T, D) of one dtype on one CUDA device, D 16, 32, 64 or 128, any T. ``scale`` is
    1 / sqrt(D) unless given.

    Returns (B, H, T, D), laid out in memory as (B, T, H, D), in the dtype of ``q``; differentiable once. Inputs that
    differ in their strides, or whose numbers of a head are not side by side, are copied. Never synchronises.

    Raises:
        ValueError: a dtype, device or shape that is not allowed; the message gives both sides.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check(x, name)
        if x.shape != q.shape or x.dtype != q.dtype or x.device != q.device:
            raise ValueError(
                f"{name} is {tuple(x.shape)} of {x.dtype} on {x.device}; "
                f"q is {tuple(q.shape)} of {q.dtype} on {q.device}"
            )
    if q.ndim != 4 or q.shape[3] not in _FORWARD[2]:
        raise ValueError(
            f"q is {tuple(q.shape)}; allowed: (B, H, T, D) with D one of {', '.join(map(str, _FORWARD[2]))}"
        )
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    if torch.compiler.is_compiling():
        return _operator(q, k, v, scale)[0]
    q, k, v = _alike(q, k, v)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return _CausalAttention.apply(q, k, v, scale)
    return _attention(q, k, v, scale)[0]
