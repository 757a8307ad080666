"""GPT-2's forward pass in plain torch over the model's own modules and a cache of fixed size: few kernels a token.

What transformers does beside the arithmetic (arguments, masks, caches as objects) is left out, and what does not
change from layer to layer (mask, positions, slot) is made once a token. Attention looks only at the slots up to the
next power of two. Every shape and address is fixed, so a token can be captured as a CUDA graph.

Imports torch: only what a run of generation needs imports this.

Shapes: B rows, n tokens, H heads, D numbers a head, S slots, V logits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.optimizations.base import Run
from explorer.optimizations.rows import Rows

SMALLEST_REACH = 256
"""Slots; looking at fewer would save less than another CUDA graph costs."""


class TorchDecoder:
    """Keys and values lie in two tensors (B, H, S, D) a layer, in the dtype of the model's embeddings."""

    def __init__(self, run: Run, rows: Rows) -> None:
        self._model = run.model
        self._rows = rows
        shape = run.model.config
        self._heads = shape.n_head
        # A multiple of eight: attention kernels that take a mask want its rows aligned.
        slots = min(-(-rows.tokens.shape[1] // 8) * 8, shape.n_positions)
        self._reaches = [reach for reach in _powers_of_two(SMALLEST_REACH) if reach < slots] + [slots]
        size = (len(rows.tokens), shape.n_head, slots, shape.n_embd // shape.n_head)
        # Zeros and not what happens to lie there: a masked weight of 0 times infinity would be NaN.
        empty = torch.zeros(size, dtype=run.model.transformer.ln_f.weight.dtype, device=run.device)
        self._caches = [(empty.clone(), empty.clone()) for _ in range(shape.n_layer)]

    def reach(self, slot: int) -> int:
        return next(reach for reach in self._reaches if slot < reach)

    def rewind(self, slot: int) -> None:
        """A slot is written again when its token is decoded again, and hidden until then."""

    def prefill(self) -> Tensor:
        rows = self._rows
        slots = torch.arange(rows.prompt, device=rows.tokens.device)
        hidden = self._hidden(rows.tokens[:, : rows.prompt], slots[None], slots, None, rows.prompt)
        return self._logits(rows.last_of_prompt(hidden))

    def decode(self, slot: int) -> Tensor:
        rows, reach = self._rows, self.reach(slot)
        # As numbers to add, once for all layers: torch would convert a boolean mask in each.
        mask = torch.zeros((), dtype=self._caches[0][0].dtype, device=rows.tokens.device)
        mask = torch.where(rows.attended(reach), mask, -torch.inf)
        hidden = self._hidden(rows.newest_tokens(), rows.newest_positions(), rows.newest, mask, reach)
        return self._logits(hidden[:, -1])

    def _hidden(self, tokens: Tensor, positions: Tensor, slots: Tensor, mask: Tensor | None, reach: int) -> Tensor:
        """The last layer's output (B, n, H D) for ``tokens`` (B, n) in ``slots`` (n,), which see ``reach`` slots."""
        model: Any = self._model.transformer
        x = model.wte(tokens) + model.wpe(positions)
        for block, (keys, values) in zip(model.h, self._caches, strict=True):
            q, k, v = (self._by_head(part) for part in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=2))
            keys.index_copy_(2, slots, k)
            values.index_copy_(2, slots, v)
            if mask is not None:
                k, v = keys[:, :, :reach], values[:, :, :reach]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and reach > 1)
            x = x + block.attn.c_proj(y.transpose(1, 2).flatten(2))
            x = x + block.mlp.c_proj(block.mlp.act(block.mlp.c_fc(block.ln_2(x))))
        return x

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, H, n, D) of (B, n, H D)."""
        return x.unflatten(2, (self._heads, -1)).transpose(1, 2)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._model.lm_head(self._model.transformer.ln_f(hidden))


def _powers_of_two(first: int) -> list[int]:
    return [first << shift for shift in range(16)]
