"""A model whose loss takes the last hidden state, so that a training step makes no logits. Imports torch.

B sequences, T tokens, D numbers a token, V logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss

from explorer.optimizations.base import Run

CrossEntropy = Callable[..., Tensor]
"""Called with x (B, T, D), the head's matrix, targets (B, T) and ``classes``: the matrix's rows that are tokens."""
IGNORED = -100


class PassingHead(nn.Module):
    """Where gradients are recorded it passes the hidden state on to the loss; else it is the head that it holds."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden if torch.is_grad_enabled() else self.head(hidden)


@contextmanager
def head_in_loss(run: Run, name: str, cross_entropy: CrossEntropy) -> Iterator[None]:
    """While entered, ``run.model`` has its loss from ``cross_entropy`` wherever gradients are recorded.

    Its output then holds no logits, and asking for them alone raises a ValueError that names ``name``. Under
    torch.no_grad() model and loss are what they were.
    """
    model: Any = run.model
    head = model.lm_head

    def loss_of(hidden: Tensor, labels: Tensor, vocab_size: int) -> Tensor:
        if not torch.is_grad_enabled():
            return ForCausalLMLoss(hidden, labels, vocab_size)
        targets = F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
        return cross_entropy(hidden, head.weight, targets, ignore_index=IGNORED, classes=vocab_size)

    def without_logits(module: nn.Module, args: Any, output: Any) -> Any:
        if not torch.is_grad_enabled():
            return output
        if output.loss is None:
            raise ValueError(
                f"loss_impl = {name} makes no logits while gradients are recorded; ask for them under torch.no_grad()"
            )
        return type(output)(loss=output.loss)

    model.lm_head = PassingHead(head)
    model.loss_function = loss_of
    # torch.compile calls the hooks of what it compiles, and would compile each for itself.
    hook = model.register_forward_hook(torch.compiler.disable(without_logits))
    try:
        yield
    finally:
        hook.remove()
        del model._loss_function
        model.lm_head = head
