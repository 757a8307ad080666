"""Spare transformers two waits for the device in each forward pass.

Without an attention mask its GPT-2 asks the device whether the position ids hide several texts in one row, and the
host waits for the answer. Ours never do: a row is one stretch of text. And the explicit attention's mask is made
with a zero that is copied from the host, which waits for all work before it.

Seen in transformers 5.17 to 5.22 (masking_utils, find_packed_sequence_indices and eager_mask). It can go when a
training step passes under torch.cuda.set_sync_debug_mode("error") without it: the test of that name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils


@contextmanager
def no_waits() -> Iterator[None]:
    """While entered, transformers prepares its masks without waiting for the device, and to the same values."""
    detect, masks = masking_utils.find_packed_sequence_indices, masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    mask = masks["eager"]
    masks["eager"] = additive_mask  # in front of transformers' own, which stays where it is
    try:
        yield
    finally:
        if mask is additive_mask:  # two sessions: the outer one still wants it
            masks["eager"] = mask
        else:
            del masks["eager"]
        masking_utils.find_packed_sequence_indices = detect


def additive_mask(*, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Tensor:
    """What ``eager_mask`` makes: (B, 1, T, S) in ``dtype``, 0 where attended, else the dtype's lowest number."""
    attended = masking_utils.sdpa_mask(**{**kwargs, "allow_is_causal_skip": False})
    assert attended is not None  # only bidirectional masks are skipped besides causal ones
    mask = torch.zeros(attended.shape, dtype=dtype, device=attended.device)
    return mask.masked_fill_(~attended, torch.finfo(dtype).min)
