"""The next token's logits by transformers' own forward pass, with its caches or without any.

Imports torch and transformers: only what a run of generation needs imports this.

Shapes: B rows, n tokens, V logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache

from explorer.optimizations.base import Run
from explorer.optimizations.rows import Rows


class HfDecoder:
    """``run.kv_cache`` says what is kept of the tokens that were seen: see the toggle of that name."""

    def __init__(self, run: Run, rows: Rows) -> None:
        self._run = run
        self._rows = rows
        self._slots = min(rows.tokens.shape[1], run.model.config.n_positions)
        self._cache: Cache | None = None
        if run.kv_cache == "static":
            self._cache = StaticCache(config=run.model.config, max_cache_len=self._slots)

    def reach(self, slot: int) -> int:
        """A static cache is looked at as a whole."""
        return self._slots

    def rewind(self, slot: int) -> None:
        # A dynamic cache has no need: its tokens are never decoded twice.
        if isinstance(self._cache, StaticCache):
            layers: list[Any] = self._cache.layers
            for layer in layers:
                layer.cumulative_length.fill_(slot)

    def prefill(self) -> Tensor:
        """Logits (B, V) after each row's prompt. Whatever the cache held is forgotten."""
        rows = self._rows
        match self._run.kv_cache:
            case "dynamic":
                self._cache = DynamicCache(config=self._run.model.config)
            case "static":
                assert self._cache is not None
                self._cache.reset()
            case "off":
                pass
        # Empty slots lie to the right: the causal mask alone keeps them from a prompt.
        positions = torch.arange(rows.prompt, device=rows.tokens.device)[None]
        mask = None
        if self._run.kv_cache == "static" and self._run.model.config._attn_implementation == "eager":
            # transformers 5.17 makes its own of a number that it copies to the device, which no graph can record.
            mask = torch.arange(self._slots, device=rows.tokens.device) <= positions[..., None]
            mask = mask[None].expand(len(rows.tokens), -1, -1, -1)
        return self._logits(rows.last_of_prompt(self._hidden(rows.tokens[:, : rows.prompt], positions, mask)))

    def decode(self, slot: int) -> Tensor:
        """Logits (B, V) after the newest token, which lies in ``slot``."""
        rows = self._rows
        mask = None
        match self._run.kv_cache:
            case "off":
                return self._whole_pass(slot + 1)
            case "dynamic":
                if rows.ragged:
                    mask = rows.attended(slot + 1)
            case "static":
                mask = rows.attended(self._slots)
        return self._logits(self._hidden(rows.newest_tokens(), rows.newest_positions(), mask)[:, -1])

    def _whole_pass(self, slots: int) -> Tensor:
        rows = self._rows
        positions = torch.arange(slots, device=rows.tokens.device)[None]
        mask = None
        if rows.ragged:
            positions = positions - (positions >= rows.start) * (rows.start - rows.lengths[:, None])
            mask = rows.causal(slots)
        return self._logits(self._hidden(rows.tokens[:, :slots], positions, mask)[:, -1])

    def _hidden(self, tokens: Tensor, positions: Tensor, attended: Tensor | None) -> Tensor:
        """The last layer's output (B, n, D); ``attended`` as from ``Rows``, or None for what is causal anyway."""
        model = self._run.model
        mask = attended
        # transformers' explicit attention adds its mask, in the dtype of its scores; the others take a boolean one.
        if attended is not None and model.config._attn_implementation == "eager":
            dtype = model.transformer.wpe.weight.dtype
            mask = torch.zeros(attended.shape, dtype=dtype, device=attended.device)
            mask = mask.masked_fill_(~attended, torch.finfo(dtype).min)
        return model.transformer(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=self._cache is not None,
        ).last_hidden_state

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._run.model.lm_head(hidden)
