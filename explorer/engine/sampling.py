"""The next token from its logits, on the device: nothing here waits for it, and a CUDA graph can hold it all.

B rows, V tokens.
"""

from __future__ import annotations

import math

import torch


def penalised(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """``logits`` (B, V), those of the tokens ``seen`` (B, S) divided by ``penalty``, or multiplied if negative.

    However often a token was seen, it loses once. Source: Keskar et al. 2019, arXiv:1909.05858, section 4.1, as
    transformers' RepetitionPenaltyLogitsProcessor has it.
    """
    scores = logits.gather(1, seen)
    # A token that stands twice in ``seen`` is written twice, with the same value.
    return logits.scatter(1, seen, torch.where(scores < 0, scores * penalty, scores / penalty))


def choose(
    logits: torch.Tensor, *, temperature: float, top_k: int, top_p: float, generator: torch.Generator
) -> torch.Tensor:
    """Token ids (B, 1) drawn from ``logits`` (B, V), or the likeliest ones at temperature 0.

    ``top_k``: only the k likeliest (0: all). ``top_p``: only the likeliest ones that together reach this
    probability (1: all), after top-k, as transformers applies them.

    ``torch.multinomial`` would wait for the device to check its input; dividing by exponential noise and taking
    the largest draws from the same distribution. Source: Efraimidis and Spirakis 2006, and gpt-fast.
    """
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits / temperature
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    probabilities = logits.softmax(dim=-1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        # A token stays while those likelier than it have not reached top_p; the likeliest one always stays.
        beyond = ordered.cumsum(dim=-1) - ordered >= top_p
        beyond[:, 0] = False
        probabilities = probabilities.masked_fill(beyond.scatter(-1, order, beyond), 0.0)
    noise = torch.empty_like(probabilities).exponential_(1.0, generator=generator)
    return (probabilities / noise).argmax(dim=-1, keepdim=True)
