"""Where the tokens of a batch of texts lie while they grow: one slot a token, new tokens in the same slot in all rows.

Row i's prompt fills slots 0 to lengths[i] - 1. Where prompts differ in length, the shorter ones leave slots empty up
to ``prompt``, the first slot of new tokens: to the right of a prompt, so that nothing in it can see them, and hidden
from what comes later by ``attended``.

Imports torch: only what a run of generation needs imports this.

Shapes: B rows, S slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EMPTY = 0
"""The token in an empty slot: any that the model has will do."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """The tensors stay the same ones while texts grow, so that a CUDA graph can read and write them."""

    tokens: Tensor
    """int64 (B, S)."""
    lengths: Tensor
    """int64 (B,): tokens in each row's prompt."""
    start: Tensor
    """int64 (1,): ``prompt``, on the device."""
    newest: Tensor
    """int64 (1,): the slot of the newest token, which no forward pass has seen yet; prompt - 1 before the first."""
    prompt: int = 0
    """The first slot of new tokens."""
    ragged: bool = False
    """Whether some slots are empty."""

    @classmethod
    def empty(cls, batch: int, slots: int, device: torch.device) -> Rows:
        """Room for ``batch`` texts of ``slots`` tokens."""
        return cls(
            tokens=torch.full((batch, slots), EMPTY, device=device),
            lengths=torch.zeros(batch, dtype=torch.int64, device=device),
            start=torch.zeros(1, dtype=torch.int64, device=device),
            newest=torch.zeros(1, dtype=torch.int64, device=device),
        )

    def begin(self, prompts: Sequence[Tensor]) -> None:
        """Begin anew with these prompts, int64 (n,), one a row."""
        lengths = [len(prompt) for prompt in prompts]
        self.prompt = max(lengths)
        self.ragged = min(lengths) < self.prompt
        self.tokens.fill_(EMPTY)
        for row, prompt in zip(self.tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        self.lengths.copy_(torch.tensor(lengths))
        self.start.fill_(self.prompt)
        self.newest.fill_(self.prompt - 1)

    def newest_tokens(self) -> Tensor:
        """int64 (B, 1)."""
        return self.tokens.index_select(1, self.newest)

    def newest_positions(self) -> Tensor:
        """int64 (B, 1): where in its text each row's newest token stands; it must be a new one."""
        return (self.lengths + (self.newest - self.start)).unsqueeze(1)

    def append(self, chosen: Tensor) -> None:
        """Put ``chosen`` (B, 1) into the next slot."""
        self.newest += 1
        self.tokens.index_copy_(1, self.newest, chosen)

    def seen(self) -> Tensor:
        """int64 (B, S): each row's text so far; where a slot is empty, or comes later, its first token once more."""
        attended = self.attended(self.tokens.shape[1])[:, 0, 0]
        return torch.where(attended, self.tokens, self.tokens[:, :1])

    def attended(self, slots: int) -> Tensor:
        """bool (B, 1, 1, slots): True where the newest token may look: its text so far, itself included."""
        slot = torch.arange(slots, device=self.tokens.device)
        old = slot < self.lengths[:, None]
        new = (slot >= self.start) & (slot <= self.newest)
        return (old | new)[:, None, None]

    def causal(self, slots: int) -> Tensor:
        """bool (B, 1, slots, slots): True where the token in a slot may look, for all that are filled."""
        slot = torch.arange(slots, device=self.tokens.device)
        filled = (slot < self.lengths[:, None]) | (slot >= self.start)
        earlier = slot[None, :] <= slot[:, None]
        # An empty slot looks at itself at least: a row of nothing would be NaN, which no mask hides later.
        return ((filled[:, None, :] & earlier) | torch.eye(slots, dtype=torch.bool, device=slot.device))[:, None]

    def last_of_prompt(self, hidden: Tensor) -> Tensor:
        """(B, D): of ``hidden`` (B, n, D) what belongs to each row's last prompt token."""
        if not self.ragged:
            return hidden[:, -1]
        return hidden[torch.arange(len(hidden), device=hidden.device), self.lengths - 1]
