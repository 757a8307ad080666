"""GPT-2's attention whose projection gets its gradient in one pass. Imports torch, transformers and Triton."""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention, eager_attention_forward

from explorer.kernels.joined_gradient import thirds
from explorer.optimizations.float8 import product_of


class JoinedAttention(GPT2Attention):
    def forward(
        self, hidden_states: Any, past_key_values: Any = None, attention_mask: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """hidden_states: (B, T, D); the same shape, and the attention weights where there are any."""
        if past_key_values is not None:
            return super().forward(hidden_states, past_key_values, attention_mask, *args, **kwargs)
        bias, rows = self.c_attn.bias, hidden_states.view(-1, hidden_states.shape[-1])
        # The bias's gradient comes with that of the three parts.
        multiply = product_of(self.c_attn)
        if multiply is torch.mm:
            projected = torch.addmm(bias.detach(), rows, self.c_attn.weight)
        else:
            projected = multiply(rows, self.c_attn.weight)
            projected = projected + bias.detach().to(projected.dtype)
        projected = projected.view(*hidden_states.shape[:-1], -1)
        query, key, value = (
            part.view(*part.shape[:-1], -1, self.head_dim).transpose(1, 2) for part in thirds(projected, bias)
        )
        attend: Any = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        attended, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attn_dropout.p if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.resid_dropout(self.c_proj(attended.flatten(-2).contiguous())), weights
