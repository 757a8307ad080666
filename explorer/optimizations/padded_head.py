"""A head with more rows than the vocabulary has tokens, in a live model and its optimizer. Imports torch.

V tokens, P rows after padding, D numbers a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.optimizations.base import Run


class PaddedHead(nn.Module):
    """The head of a model: (..., D) to (..., V), by a matrix of more rows than V."""

    def __init__(self, weight: nn.Parameter, vocabulary: int) -> None:
        super().__init__()
        self.weight = weight
        self.vocabulary = vocabulary

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight)[..., : self.vocabulary]


@contextmanager
def padded(run: Run, rows: int) -> Iterator[None]:
    """While entered, embedding and head, which are one matrix, have ``rows`` rows; those beyond the V tokens are zero
    and stay so. So has what the optimizer keeps of them."""
    model = run.model
    weight = model.transformer.wte.weight
    assert isinstance(weight, nn.Parameter)
    vocabulary = weight.shape[0]
    head = model.lm_head
    # The original waits in host memory (on the CPU that is where it is), so that the device holds what it really takes.
    original = weight.data.cpu()
    try:
        _resize(run, weight, lambda tensor: F.pad(tensor, (0, 0, 0, rows - vocabulary)))
        model.lm_head = PaddedHead(weight, vocabulary)
        yield
    finally:
        model.lm_head = head
        original.copy_(weight.data[:vocabulary])
        _resize(run, weight, lambda tensor: tensor[:vocabulary].clone())
        weight.data = original.to(run.device)


def _resize(run: Run, weight: nn.Parameter, resized: Callable[[Tensor], Tensor]) -> None:
    weight.grad = None  # of the old size, and of a step that is over
    old = weight.shape
    weight.data = resized(weight.data)
    # The parameter stays the same object, and so do the optimizer's groups and its key for this state.
    state = {} if run.optimizer is None else run.optimizer.state.get(weight, {})
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == old:
            state[name] = resized(value)
