"""Weights in 8 bits with a scale for each output: memory and bandwidth a quarter of float32's, arithmetic in 16.

Imports torch: only ``weight_dtype.py``'s ``applied`` imports this, once a run needs it.

Shapes: N outputs, K inputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGEST = 127
"""Of the 256 values -128 is left out, so that both signs reach equally far."""


def quantized(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """int8 (N, K) and a scale (N,) of ``dtype`` whose product is near ``weight`` (N, K): off by half a scale.

    The scale is rounded to ``dtype`` before it is used: rounded afterwards it would cost as much again.
    """
    scale = weight.abs().amax(dim=1).div(LARGEST).clamp(min=torch.finfo(dtype).tiny).to(dtype)
    rounded = (weight / scale[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    return rounded.contiguous(), scale  # rows of outputs, also where ``weight`` is a transposed view


class Int8Linear(nn.Module):
    """x -> x W^T s + b, with W in int8. In plain torch the weight is cast at each call, through memory."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """``weight`` (N, K) and ``bias`` (N,) of any dtype; ``dtype``: what it computes in."""
        super().__init__()
        rounded, scale = quantized(weight.detach(), dtype)
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        # The scale belongs to the output, so it is applied to the few outputs and not to the many weights.
        y = F.linear(x, self.weight.to(x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias


class Int8Embedding(nn.Module):
    """Rows of W s, with W in int8: the head's own tensors, as GPT-2 ties them."""

    weight: Tensor
    scale: Tensor

    def __init__(self, head: Int8Linear) -> None:
        super().__init__()
        self.register_buffer("weight", head.weight)
        self.register_buffer("scale", head.scale)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens].to(self.scale.dtype) * self.scale[tokens].unsqueeze(-1)
