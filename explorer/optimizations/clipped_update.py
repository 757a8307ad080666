"""Gradients clipped by the kernel that reads them anyway, AdamW's fused one. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def clip_in_update(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """``torch.nn.utils.clip_grad_norm_`` without its pass over the gradients: ``optimizer``'s next step does its work.

    ``optimizer`` must be one of torch's fused Adam kind, whose kernels divide the gradients by ``grad_scale`` as they
    read them, and write them back so. Returns the norm of all gradients, a scalar on the device. Nothing waits for it.

    Source: torch/optim/adam.py (grad_scale); nn/utils/clip_grad.py multiplies by min(1, max_norm / (norm + 1e-6)).
    """
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    optimizer.grad_scale = ((norm + 1e-6) / max_norm).clamp_min(1.0)  # type: ignore[attr-defined]
    return norm
