"""A layer norm by this project's Triton kernel. Imports torch and Triton."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from explorer.kernels.layer_norm import layer_norm


class TritonLayerNorm(nn.Module):
    """``norm`` with its own weights, under their names. Under autocast it gives the format of the products."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., D); the same shape."""
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        normed: Tensor = layer_norm(x, self.weight, self.bias, self.eps, dtype)
        return normed
