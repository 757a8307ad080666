"""Spare transformers a wait for the device in each training step.

Without an attention mask its GPT-2 asks the device, in every forward pass, whether the position ids hide several
texts in one row, and the host waits for the answer. Ours never do: a row is one stretch of text.
Seen in transformers 5.17 to 5.22 (masking_utils.find_packed_sequence_indices); it can go when that function no
longer calls ``.all()`` outside of tracing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import masking_utils


@contextmanager
def rows_are_one_text_each() -> Iterator[None]:
    """While entered, transformers takes every row of every batch for one text, without asking the device."""
    detect = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = detect
