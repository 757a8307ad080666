"""Two texts of two configurations from one prompt and seed: how fast each came, and where they part."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.results.parity import first_difference
from explorer.results.sample import Sample

SHOWN_LETTERS = 24
"""Of each text after the place where they part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A text without its prompt, its speed and its memory."""

    text: str
    tokens_per_s: float | None
    """Median over the decoded tokens, of all rows together; the first, which loads kernels, is left out, and warm-up
    where more came after it. None: too few tokens."""
    first_token_ms: float | None
    peak_bytes: int | None = None
    """The most that a decoded token had allocated, weights included (on the CPU: the process). None: not measured."""


def written(text: str, samples: Sequence[Sample]) -> Written:
    """``text`` with the speed and memory that ``samples``, one a token, show."""
    decoded = [sample for sample in samples if sample.phase in ("warmup", "steady")]
    counted = [sample for sample in decoded if sample.phase == "steady"] or decoded
    return Written(
        text=text,
        tokens_per_s=statistics.median(sample.tokens_per_s for sample in counted) if counted else None,
        first_token_ms=next((sample.step_ms for sample in samples if sample.phase == "prefill"), None),
        peak_bytes=max((s.peak_allocated_bytes for s in decoded if s.peak_allocated_bytes >= 0), default=None),
    )


def in_words(a: Written, b: Written) -> str:
    """Where the two texts part, in one sentence."""
    place = first_difference(a.text, b.text)
    if place is None:
        return f"the texts are the same: {len(a.text):,} characters"
    goes_on = [json.dumps(w.text[place : place + SHOWN_LETTERS], ensure_ascii=False) for w in (a, b)]
    return f"the texts part after {place:,} characters: A goes on with {goes_on[0]}, B with {goes_on[1]}"
