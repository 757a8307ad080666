"""A decoded token in five Triton kernels a layer, at several rows in seven; prompts are prefilled in plain torch.

    norm, queries/keys/values, into the cache | attention | projection, added | norm, up, GeLU | down, added
    queries/keys/values, into the cache | attention | projection | added, norm | up, GeLU | down | added, norm

The residual stream stays in float32 between them, in one buffer of a row a text.

Imports torch and triton: only ``decoder.py``'s ``applied`` imports this, once a run needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from explorer.kernels.decode_attention import decode_attention
from explorer.kernels.decode_choice import decode_choice
from explorer.kernels.decode_embedding import decode_embedding
from explorer.kernels.decode_linear import Linear, decode_linear, decode_parts, decode_qkv
from explorer.kernels.decode_residual import decode_residual
from explorer.optimizations.base import Run
from explorer.optimizations.int8 import Int8Linear
from explorer.optimizations.rows import Rows
from explorer.optimizations.torch_decoder import TorchDecoder


class TritonDecoder(TorchDecoder):
    """The weights of transformers' Conv1D must lie transposed in memory: see ``transposed``."""

    def __init__(self, run: Run, rows: Rows) -> None:
        super().__init__(run, rows)
        model: Any = run.model
        body = model.transformer
        self._layers = [
            (
                _linear(block.attn.c_attn, block.ln_1),
                _linear(block.attn.c_proj),
                _linear(block.mlp.c_fc, block.ln_2),
                _linear(block.mlp.c_proj),
            )
            for block in body.h
        ]
        self._head = _linear(model.lm_head, body.ln_f)
        self._positions = body.wpe.weight.detach()
        batch, width = len(rows.tokens), body.wpe.weight.shape[1]

        def buffer(columns: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(batch, columns, dtype=dtype, device=run.device)

        dtype = body.ln_f.weight.dtype
        self._x = buffer(width, torch.float32)
        self._queries, self._attended = buffer(width, dtype), buffer(width, dtype)
        self._inner = buffer(len(self._layers[0][2].weight), dtype)
        # For several rows, whose norms are kernels of their own.
        self._plain = [tuple(replace(linear, norm=None) for linear in layer) for layer in self._layers]
        self._plain_head = replace(self._head, norm=None)
        self._norms = [linear.norm for layer in self._layers for linear in layer if linear.norm] + [self._head.norm]
        self._normed = buffer(width, dtype)
        self._parts = [
            torch.empty(linear.shares(batch), batch, width, device=run.device)
            for linear in (self._layers[0][1], self._layers[0][3])
        ]
        self._outputs = buffer(len(self._head.weight), torch.float32)

    def reach(self, slot: int) -> int:
        """Attention reads on the device how far it has to look."""
        return self._reaches[-1]

    def decode(self, slot: int) -> Tensor:
        rows, head = self._rows, self._head
        decode_embedding(
            rows.tokens, rows.lengths, rows.start, rows.newest, head.weight, head.scale, self._positions, self._x
        )
        if len(rows.tokens) == 1:
            self._decode_row()
        else:
            self._decode_rows()
        return self._outputs

    def _decode_row(self) -> None:
        """Five kernels a layer: each program of a product norms the one row for itself."""
        rows, x = self._rows, self._x
        for (qkv, projection, up, down), (keys, values) in zip(self._layers, self._caches, strict=True):
            decode_qkv(x, qkv, self._queries, keys, values, rows.newest)
            decode_attention(self._queries, keys, values, rows.lengths, rows.start, rows.newest, self._attended)
            decode_linear(self._attended, projection, x, add=True)
            decode_linear(x, up, self._inner, gelu=True)
            decode_linear(self._inner, down, x, add=True)
        decode_linear(x, self._head, self._outputs)

    def _decode_rows(self) -> None:
        """Seven kernels a layer: several rows are normed once, where they are added to."""
        rows, x, normed, parts = self._rows, self._x, self._normed, self._parts
        decode_residual(x, None, None, self._norms[0], normed)
        for index, ((qkv, projection, up, down), (keys, values)) in enumerate(
            zip(self._plain, self._caches, strict=True)
        ):
            decode_qkv(normed, qkv, self._queries, keys, values, rows.newest)
            decode_attention(self._queries, keys, values, rows.lengths, rows.start, rows.newest, self._attended)
            decode_parts(self._attended, projection, parts[0])
            decode_residual(x, parts[0], projection.bias, self._norms[2 * index + 1], normed)
            decode_linear(normed, up, self._inner, gelu=True)
            decode_parts(self._inner, down, parts[1])
            decode_residual(x, parts[1], down.bias, self._norms[2 * index + 2], normed)
        decode_linear(normed, self._plain_head, self._outputs)

    def append_likeliest(self, slot: int, vocabulary: int) -> None:
        logits = self.decode(slot)
        decode_choice(logits, min(vocabulary, logits.shape[1]), self._rows.tokens, self._rows.newest)


def _linear(module: nn.Module, norm: nn.Module | None = None) -> Linear:
    """The weights of a Conv1D (which holds them as (inputs, outputs)), a Linear or an Int8Linear."""
    held: Any = module
    weight = held.weight.detach()
    if not isinstance(module, (nn.Linear, Int8Linear)):
        weight = weight.T
    before: Any = norm
    return Linear(
        weight=weight,
        scale=held.scale if isinstance(module, Int8Linear) else None,
        bias=None if held.bias is None else held.bias.detach(),
        norm=None if norm is None else (before.weight.detach(), before.bias.detach(), before.eps),
    )


@contextmanager
def transposed(run: Run) -> Iterator[None]:
    """While entered, each Conv1D's weight has its shape (inputs, outputs), but lies in memory as (outputs, inputs)."""
    weights = [module.weight for module in run.model.modules() if isinstance(module, Conv1D)]
    try:
        for weight in weights:
            weight.data = weight.data.T.contiguous().T
        yield
    finally:
        for weight in weights:
            weight.data = weight.data.contiguous()
