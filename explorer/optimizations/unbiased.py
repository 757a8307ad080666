"""Projections of GPT-2 that leave their bias to whoever uses them. Imports torch and transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from explorer.optimizations.float8 import product_of


class Unbiased(Conv1D):
    """x W alone, (..., N) to (..., M); ``bias`` is still its parameter."""

    def forward(self, x: Tensor) -> Tensor:
        return product_of(self)(x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.nf)


@contextmanager
def of_class(modules: Sequence[nn.Module], cls: type[nn.Module]) -> Iterator[None]:
    """While entered, ``modules`` compute as ``cls`` does, a class of the same attributes.

    So parameters, hooks and names stay what they are. A ``forward`` of an instance would not be compiled with it.
    """
    before = [type(module) for module in modules]
    for module in modules:
        module.__class__ = cls
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            module.__class__ = own
