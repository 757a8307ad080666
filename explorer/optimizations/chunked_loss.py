"""Head and loss in one, in plain torch: the logits exist for some rows at a time. Imports torch.

R rows of x, D numbers a row; P rows of the head's matrix, the first V of them tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 1 << 30
"""Most that the logits of a chunk take, in the format of the products."""
CHUNKS = 4
"""Fewest chunks, where there are as many rows."""


def rows_at_a_time(rows: int, columns: int, itemsize: int) -> int:
    """Rows of a chunk: whole tiles of 128 for the products, if it can be."""
    wanted = max(1, min(-(-rows // CHUNKS), CHUNK_BYTES // (columns * itemsize)))
    return -(-wanted // 128) * 128 if wanted > 128 else wanted


class _Chunked(torch.autograd.Function):
    """The gradients are made with the loss, in the forward pass: the logits need not be kept or made twice."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, vocabulary: int, ignored: int, dtype: torch.dtype
    ) -> Tensor:
        counts = (target != ignored)[:, None]
        column = target[:, None].where(counts, 0)
        with torch.autocast(x.device.type, enabled=False):
            half, matrix = x.to(dtype), weight.to(dtype)
            loss = torch.zeros((), dtype=torch.float32, device=x.device)
            dw = torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
            parts = []
            size = rows_at_a_time(x.shape[0], weight.shape[0], half.element_size())
            for first in range(0, x.shape[0], size):
                part = slice(first, first + size)
                losses, dz = _chunk(half[part], matrix, column[part], vocabulary)
                loss = loss + losses.where(counts[part], 0).sum()
                parts.append((dz @ matrix).where(counts[part], 0))
                dw += dz.t() @ half[part].where(counts[part], 0)
                del dz  # before the next chunk is made
            dx, number = torch.cat(parts), counts.sum()
        ctx.save_for_backward(dx, dw, number)
        ctx.dtypes = x.dtype, weight.dtype
        return loss / number

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, number = ctx.saved_tensors
        factor = dloss / number
        x_dtype, weight_dtype = ctx.dtypes
        return (dx * factor).to(x_dtype), (dw * factor).to(weight_dtype), None, None, None, None


def _chunk(x: Tensor, matrix: Tensor, column: Tensor, vocabulary: int) -> tuple[Tensor, Tensor]:
    """The loss of each row, float32 (R, 1), and the gradient of its sum by the logits (R, P), in the dtype of x."""
    z = x @ matrix.t()
    z[:, vocabulary:] = -torch.inf
    log_p = F.log_softmax(z, -1, dtype=torch.float32)
    del z
    log_target = log_p.gather(1, column)
    # dz = p, less 1 at the target: there subtracted in float32 before it is rounded.
    return -log_target, log_p.exp_().to(x.dtype).scatter_(1, column, (log_target.exp() - 1).to(x.dtype))


def chunked_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int = -100, classes: int | None = None
) -> Tensor:
    """Mean cross entropy of the logits x W^T (R, V), which are never held all at once.

    Args:
        x: (..., D); ``weight``: (P, D); under autocast both are cast to its format for the products.
        target: (...) int64.
        classes: V; all P rows by default.

    Returns:
        The float32 scalar mean over the targets other than ``ignore_index``; differentiable once.
    """
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    rows, target = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    loss: Tensor = _Chunked.apply(rows, weight, target, classes or weight.shape[0], ignore_index, dtype)
    return loss
