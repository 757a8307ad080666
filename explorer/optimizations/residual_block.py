"""GPT-2's block with its norms, residual sums and their biases in kernels of this project. Imports torch and Triton."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from explorer.kernels.residual_norm import middle_norm, opening_norm


class ResidualBlock(GPT2Block):
    """A block whose attention and feed-forward end in ``Unbiased`` projections; without dropout or cross-attention."""

    def forward(
        self, hidden_states: Any, past_key_values: Any = None, attention_mask: Any = None, *_: Any, **kwargs: Any
    ) -> Any:
        """hidden_states: (B, T, D); the same shape and dtype."""
        kind = hidden_states.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_states.dtype
        first, second, last_bias = self.ln_1, self.ln_2, self.mlp.c_proj.bias
        normed, stream = opening_norm(hidden_states, first.weight, first.bias, first.eps, dtype)
        kwargs.pop("encoder_attention_mask", None)  # of the cross-attention
        attended, _weights = self.attn(normed, past_key_values=past_key_values, attention_mask=attention_mask, **kwargs)
        stream, normed = middle_norm(
            attended, self.attn.c_proj.bias, stream, second.weight, second.bias, last_bias, second.eps
        )
        # The bias's gradient comes from the norm above, which reads this sum's gradient anyway.
        return stream + (self.mlp(normed) + last_bias.detach())
