"""Text that ``mini`` was never trained on, and how well a model under its toggles foretells it."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch.nn import functional

from explorer.engine.mini_corpus import is_held_out
from explorer.engine.text import python_source
from explorer.engine.tokenizer import Tokenizer
from explorer.optimizations.base import Run
from explorer.optimizations.compiled import as_written

TOKENS = {"cuda": 8192, "cpu": 256}
"""By device; a CPU that emulates half precision takes seconds for its few."""
CHARACTERS_A_TOKEN = 8
"""More than any tokenizer here makes of Python."""


@cache
def held_out_text(characters: int) -> str:
    """So many characters of the running Python's documentation and sources, or all that is held out of them."""
    text = ""
    for document in python_source().documents():
        if len(text) >= characters:
            break
        if is_held_out(document):
            text += document
    return text[:characters]


def perplexity(run: Run, tokenizer: Tokenizer) -> float | None:
    """e to the mean loss, in nats a token, of ``TOKENS`` held-out tokens in windows of the model's positions.

    None where a logit was not finite, or no text is there.
    """
    tokens = TOKENS[run.device.type]
    ids = torch.tensor(tokenizer.encode(held_out_text(CHARACTERS_A_TOKEN * tokens))[:tokens], dtype=torch.int64)
    nats, counted = 0.0, 0
    for window in ids.split(run.model.config.n_positions):
        if len(window) < 2:
            continue  # nothing comes before its only token
        window = window.to(run.device)[None]
        with as_written(run.model), torch.no_grad(), run.autocast():
            logits = run.model(input_ids=window, use_cache=False).logits[0, :-1].float()
        nats += float(functional.cross_entropy(logits, window[0, 1:], reduction="none").sum(dtype=torch.float64))
        counted += len(logits)
    return math.exp(nats / counted) if counted and math.isfinite(nats) else None
