"""The likeliest token of each row, put in its place: two kernels at the end of a greedy decoding step.

    tokens[i, newest + 1] = argmax of logits[i, :limit];   newest += 1          logits (B, V), tokens (B, S)

The first reads the logits once, 4 B V bytes, by as many programs as fill the card; the second is one program, which
looks through what they found and, when every row's slot is known, moves ``newest`` on. Of equal logits the first wins,
as in torch. torch takes an argmax of few rows, an addition and a scattered write for the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from explorer.kernels.launch import check, dependent, run, tl, triton

_BLOCK = 1024
_ROWS = 32


@triton.jit(repr=lambda specialization: "decode_choice_parts")
def _parts(logits_ptr, best_ptr, at_ptr, columns, limit, parts, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row, part = tl.program_id(1), tl.program_id(0)
    column = part * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row.to(tl.int64) * columns + column, mask=column < limit, other=-float("inf"))
    best, at = tl.max(logits.to(tl.float32), 0, return_indices=True)
    tl.store(best_ptr + row * parts + part, best)
    tl.store(at_ptr + row * parts + part, part * BLOCK + at)


@triton.jit(repr=lambda specialization: "decode_choice")
def _choose(
    best_ptr, at_ptr, tokens_ptr, newest_ptr, rows, slots, parts,
    ROWS: tl.constexpr, PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    slot = tl.load(newest_ptr) + 1
    part = tl.arange(0, PARTS)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (part < parts)[None, :]
        best = tl.load(best_ptr + row[:, None] * parts + part[None, :], mask=inside, other=-float("inf"))
        _, winner = tl.max(best, 1, return_indices=True)
        token = tl.load(at_ptr + row * parts + winner, mask=row < rows, other=0)
        tl.store(tokens_ptr + row.to(tl.int64) * slots + slot, token.to(tl.int64), mask=row < rows)
    tl.debug_barrier()  # no thread still has to read what the next line changes
    tl.store(newest_ptr, slot)


def decode_choice(logits: Tensor, limit: int, tokens: Tensor, newest: Tensor) -> None:
    """Put the likeliest of the first ``limit`` of ``logits`` (B, V) into slot ``newest`` + 1 of ``tokens`` (B, S).

    ``newest`` (1,) and ``tokens`` are int64, on the device; ``newest`` becomes that slot. Never synchronises.

    Raises:
        ValueError: a shape, layout or dtype that is not allowed.
    """
    check(logits, "logits")
    rows, columns = logits.shape
    if not logits.is_contiguous() or not 0 < limit <= columns:
        raise ValueError(
            f"logits is {tuple(logits.shape)}; it must be contiguous, and limit ({limit}) at most its width"
        )
    if tokens.shape[:1] != (rows,) or not tokens.is_contiguous():
        raise ValueError(f"tokens is {tuple(tokens.shape)}; logits of {(rows, columns)} need contiguous ({rows}, S)")
    parts = triton.cdiv(limit, _BLOCK)
    best = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    at = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    early = dependent(logits)
    run(
        _parts, (parts, rows), logits, logits, best, at, columns, limit, parts,
        BLOCK=_BLOCK, EARLY=early, num_warps=4, launch_pdl=early,
    )  # fmt: skip
    run(
        _choose, (1,), logits, best, at, tokens, newest, rows, tokens.shape[1], parts,
        ROWS=min(_ROWS, triton.next_power_of_2(rows)), PARTS=triton.next_power_of_2(parts), EARLY=early,
        num_warps=8, launch_pdl=early,
    )  # fmt: skip
