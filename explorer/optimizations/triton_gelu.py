"""GeLU by this project's Triton kernels, alone or with the bias before it. Imports torch, transformers and Triton.

Classes of a module's own: torch.compile has one compiled block serve all others only where their modules are of the
same classes, and gives up after eight that are not.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from explorer.kernels.bias_gelu import bias_gelu
from explorer.kernels.gelu import gelu


class TritonGelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """x: any shape; the same shape and dtype."""
        y: Tensor = gelu(x)
        return y


class BiasGeluMlp(GPT2MLP):
    """A feed-forward half whose first projection is ``Unbiased``: the kernel of the GeLU adds that bias."""

    def forward(self, hidden_states: Any) -> Any:
        """hidden_states: (..., D); the same shape."""
        return self.dropout(self.c_proj(bias_gelu(self.c_fc(hidden_states), self.c_fc.bias)))
