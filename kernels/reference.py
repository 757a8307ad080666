"""The same functions in plain torch, written as their formulas are: what tests and verification compare with.

Each computes in the dtype of its arguments (give it float64 for a reference) and autograd differentiates it.
Imports neither triton nor the kernels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise.

    Source: Hendrycks and Gimpel 2016, section 2; GPT-2's own code, ``gelu`` in model.py ("gelu_new").
    """
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias) with ``bias`` (D,) added to each row of ``x`` (..., D)."""
    return gelu(x + bias)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension; var divides by the number of columns.

    Source: Ba, Kiros and Hinton 2016, equation 3.
    """
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps) * weight + bias


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """h = x + residual, and LayerNorm of h."""
    h = x + residual
    return h, layer_norm(h, weight, bias, eps)


def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean of log sum exp(z) - z[target] over the rows z of x @ weight.T whose target is not ``ignore_index``."""
    logits = x.reshape(-1, x.shape[-1]) @ weight.t()
    target = target.reshape(-1)
    logits, target = logits[target != ignore_index], target[target != ignore_index]
    return (torch.logsumexp(logits, -1) - logits.gather(1, target[:, None])[:, 0]).mean()


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """softmax(scale q k^T + mask) v of (B, H, T, D), the mask -inf above the diagonal; scale 1 / sqrt(D) by default."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * q @ k.transpose(-2, -1)
    beyond = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(beyond, -math.inf), -1) @ v
