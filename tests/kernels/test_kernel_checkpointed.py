"""Every kernel with a gradient under torch.utils.checkpoint, which gives back once what was saved, not twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import Place
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from explorer.kernels.attention import causal_attention
from explorer.kernels.bias_gelu import bias_gelu
from explorer.kernels.gelu import gelu
from explorer.kernels.joined_gradient import thirds
from explorer.kernels.layer_norm import add_layer_norm, layer_norm
from explorer.kernels.linear_cross_entropy import linear_cross_entropy
from explorer.kernels.residual_norm import middle_norm, opening_norm

ROWS, WIDTH = 32, 16
Function = Callable[..., Tensor]


def _loss(x: Tensor, w: Tensor) -> Tensor:
    return linear_cross_entropy(x, w, torch.arange(ROWS, device=x.device) % WIDTH)


# Each with the shapes of what it is given.
FUNCTIONS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "gelu": (gelu, [(ROWS, WIDTH)]),
    "bias_gelu": (bias_gelu, [(ROWS, WIDTH), (WIDTH,)]),
    "layer_norm": (layer_norm, [(ROWS, WIDTH), (WIDTH,), (WIDTH,)]),
    "add_layer_norm": (
        lambda *given: torch.cat(add_layer_norm(*given)),
        [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), (WIDTH,)],
    ),
    "opening_norm": (
        lambda h, w, b: torch.cat(opening_norm(h, w, b, 1e-5, h.dtype)),
        [(ROWS, WIDTH), (WIDTH,), (WIDTH,)],
    ),
    "middle_norm": (
        lambda x, xb, r, w, b, last: torch.cat(middle_norm(x, xb, r, w, b, last, 1e-5)),
        [(ROWS, WIDTH), (WIDTH,), (ROWS, WIDTH), (WIDTH,), (WIDTH,), (WIDTH,)],
    ),
    "thirds": (lambda x, b: torch.cat(thirds(x, b)), [(ROWS, 3 * WIDTH), (3 * WIDTH,)]),
    "causal_attention": (lambda q, k, v: causal_attention(q, k, v), [(1, 2, ROWS, WIDTH)] * 3),
    "linear_cross_entropy": (_loss, [(ROWS, WIDTH), (WIDTH, WIDTH)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_that_a_checkpointed_kernel_has_the_gradients_of_a_plain_one(name: str, place: Place) -> None:
    function, shapes = FUNCTIONS[name]
    given = [place.randn(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    plain = function(*given)
    again = checkpoint(function, *given, use_reentrant=False)
    assert isinstance(again, Tensor)
    assert torch.equal(plain, again)
    weights = place.randn(*plain.shape, seed=9)
    expected = torch.autograd.grad(plain, given, weights)
    found = torch.autograd.grad(again, given, weights)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
