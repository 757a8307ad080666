"""Attention functions in the form that transformers calls, and the masks they are called with.

Imports torch and transformers: only ``attention.py``'s ``applied`` imports this, once a run needs it.

Shapes: B sequences, H heads, T queries, S keys (T, and before them what the cache holds), D numbers a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.masking_utils import sdpa_mask


def sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """torch's scaled_dot_product_attention, causal by its flag, so that no mask exists unless one is given.

    Args:
        query: (B, H, T, D); ``key`` and ``value``: (B, H, S, D).
        attention_mask: None, or (B or 1, 1, T, S): boolean, True where attended, or added to the scores.

    Returns:
        (B, T, H, D) in the dtype that the products ran in, and None for the weights, which never exist.

    Raises:
        RuntimeError: the one kernel that is allowed cannot do this call.
    """
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None and 1 < queries < keys:
        # SDPA's own flag aligns the triangle with the first key; after a cache it belongs at the last one.
        attention_mask = _causal(queries, keys, query.device)
    out = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        is_causal=attention_mask is None and queries > 1,
        scale=scaling,
    )
    return out.transpose(1, 2), None


def naive_half(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """The explicit matrix of scores, masked and normalized in ``value``'s dtype. Arguments as in ``sdpa``.

    Returns:
        (B, T, H, D) and the weights (B, H, T, S), both in ``value``'s dtype.

    Raises:
        ValueError: the mask is not boolean.
    """
    if attention_mask is None:
        attention_mask = _causal(query.shape[2], key.shape[2], query.device)
    if attention_mask.dtype != torch.bool:
        raise ValueError(f"the attention mask is {attention_mask.dtype}; naive_half takes a boolean one")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    # The dtype's lowest number and not -inf: a row that is masked as a whole (padding) would become NaN.
    scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    # On CUDA autocast would run the softmax in float32.
    with torch.autocast(query.device.type, enabled=False):
        weights = F.softmax(scores, dim=-1)
    weights = F.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2), weights


def triton() -> Callable[..., tuple[Tensor, None]]:
    """An attention function around this project's Triton kernel; arguments as in ``sdpa``, T equal to S.

    Raises:
        ImportError: Triton cannot be imported.
    """
    from explorer.kernels.attention import causal_attention

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        if dropout or attention_mask is not None:
            mask = "no mask" if attention_mask is None else "a mask"
            raise ValueError(f"dropout is {dropout}, with {mask}; the Triton kernel takes 0 and none")
        return causal_attention(query, key, value, scaling).transpose(1, 2), None

    return attend


def mask_where_needed(
    *,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Tensor | None:
    """transformers' boolean mask, or None where ``sdpa`` needs none: one query, or as many queries as keys.

    transformers also leaves it out for a prompt in a longer, still empty static cache, where the triangle starts at
    the first key: without a mask that could not be told from a prompt after a filled cache. Up to 5.17 it makes one
    while a CUDA graph is recorded: the recorded step would be another than those before it, and compile there.
    """
    square = q_length in (1, kv_length)
    if attention_mask is None and allow_is_causal_skip and square and not torch.compiler.is_compiling():
        return None
    return sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        attention_mask=attention_mask,
        allow_is_causal_skip=allow_is_causal_skip and square,
        **kwargs,
    )


def mask_if_padded(
    *,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Tensor | None:
    """As ``mask_where_needed``, but None also under torch.compile, where transformers (5.17 to 5.22) makes one.

    With a mask neither flash nor a kernel that skips the upper half can run.
    """
    if attention_mask is None and allow_is_causal_skip and q_length in (1, kv_length):
        return None
    return mask_where_needed(
        q_length=q_length,
        kv_length=kv_length,
        attention_mask=attention_mask,
        allow_is_causal_skip=allow_is_causal_skip,
        **kwargs,
    )


def mask_unless_padded(*, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """As ``mask_if_padded``, of unpadded text only.

    Raises:
        ValueError: padding is given.
    """
    if attention_mask is not None:
        raise ValueError("an attention mask is given; attention = causal and triton take unpadded text only")
    return mask_if_padded(**kwargs)


def mask_always(**kwargs: Any) -> Tensor | None:
    """transformers' boolean mask (B, 1, T, S), made once a forward pass for all blocks."""
    return sdpa_mask(**{**kwargs, "allow_is_causal_skip": False})


def _causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """(T, S), True where attended: the last query sees every key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
