"""The sum over rows that ends a backward pass over the rows of a matrix.

Such a pass leaves, per program, one float32 row of partial sums; these are added in a fixed order, so that the
result has the same bits every time (atomics would not). G rows of D columns read, D written: 4 G D bytes and G D
additions in float32, small beside the pass itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from explorer.kernels.launch import run, tl, triton

# A program adds 64 columns, 32 rows at a time: 256 contiguous bytes a row.
_ROWS, _COLUMNS, _WARPS = 32, 64, 4


@triton.jit
def _column_sum(parts_ptr, sum_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(parts_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(sum_ptr + column, tl.sum(total, 0).to(sum_ptr.dtype.element_ty), mask=column < columns)


def column_sum(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the rows of ``parts`` (contiguous, float32, fewer than 2^31 elements), rounded to ``dtype``."""
    rows, columns = parts.shape
    total = torch.empty(columns, dtype=dtype, device=parts.device)
    if columns:
        programs = ((columns + _COLUMNS - 1) // _COLUMNS,)
        run(_column_sum, programs, parts, parts, total, rows, columns, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS)
    return total
