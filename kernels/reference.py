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
