"""kernels/bias_gelu.py against its formula in float64 and against torch's bias and fused GeLU."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu as torch_gelu

from explorer.kernels import bias_gelu as bias_gelu_file
from explorer.kernels import reference
from explorer.kernels.bias_gelu import bias_gelu

# One row, odd widths, more than one tile of columns (1024).
SHAPES = [(1,), (0, 5), (3, 0), (7, 1), (2, 3, 33), (5, 1031), (3, 2048)]


def with_gradients(function, x, bias, dy):
    x, bias = x.detach().requires_grad_(), bias.detach().requires_grad_()
    y = function(x, bias)
    return y.detach(), *torch.autograd.grad(y, (x, bias), dy)


def torchs(x, bias):
    return torch_gelu(x + bias, approximate="tanh")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_that_value_and_both_gradients_are_as_exact_as_torchs(place, shape, as_exact_as_torch):
    x, dy = place.randn(*shape, seed=1, scale=2), place.randn(*shape, seed=2)
    bias = place.randn(shape[-1], seed=3, shift=0.5)
    ours = with_gradients(bias_gelu, x, bias, dy)
    exact = with_gradients(reference.bias_gelu, x.double(), bias.double(), dy.double())
    for result, by_torch, right in zip(ours, with_gradients(torchs, x, bias, dy), exact, strict=True):
        assert result.dtype == place.dtype
        as_exact_as_torch(result, by_torch, right)


def test_that_a_float32_bias_beside_half_precision_gets_a_float32_gradient(place, as_exact_as_torch):
    x, dy = place.randn(40, 70, seed=1), place.randn(40, 70, seed=2)
    bias = place.randn(70, seed=3).float() + 1 / 3
    y, dx, dbias = with_gradients(bias_gelu, x, bias, dy)
    assert (y.dtype, dx.dtype, dbias.dtype) == (place.dtype, place.dtype, torch.float32)
    exact = with_gradients(reference.bias_gelu, x.double(), bias.double(), dy.double())
    by_torch = with_gradients(torchs, x.float(), bias, dy.float())
    as_exact_as_torch(dbias, by_torch[2], exact[2])
    as_exact_as_torch(y, by_torch[0].to(place.dtype), exact[0])


@pytest.mark.parametrize("partials", [1, 2, 5])
def test_that_programs_that_add_many_rows_miss_none(place, partials, as_exact_as_torch, monkeypatch):
    monkeypatch.setattr(bias_gelu_file, "_PROGRAMS", partials)
    x, dy, bias = place.randn(97, 17, seed=1), place.randn(97, 17, seed=2), place.randn(17, seed=3)
    ours = with_gradients(bias_gelu, x, bias, dy)
    exact = with_gradients(reference.bias_gelu, x.double(), bias.double(), dy.double())
    for result, by_torch, right in zip(ours, with_gradients(torchs, x, bias, dy), exact, strict=True):
        as_exact_as_torch(result, by_torch, right)


def test_that_the_bias_gradient_has_the_same_bits_each_time(place):
    x, bias, dy = place.randn(60, 20, seed=1), place.randn(20, seed=2), place.randn(60, 20, seed=3)
    first, second = (with_gradients(bias_gelu, x, bias, dy)[2] for _ in range(2))
    assert torch.equal(first, second)


def test_that_strides_do_not_matter(place):
    x, dy = place.randn(24, 18, seed=1).t(), place.randn(24, 18, seed=2).t()
    bias = place.randn(48, seed=3)[::2]
    ours = with_gradients(bias_gelu, x, bias, dy)
    contiguous = with_gradients(bias_gelu, x.contiguous(), bias.contiguous(), dy.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(ours, contiguous, strict=True))


def test_that_an_infinite_value_stays_in_its_element_and_column(place):
    x, bias = place.randn(5, 6, seed=1), place.randn(6, seed=2)
    x[1, 2], bias[4] = math.inf, math.nan
    y, dx, dbias = with_gradients(bias_gelu, x, bias, torch.ones_like(x))
    assert y[1, 2] == math.inf
    assert y.isnan().nonzero()[:, 1].tolist() == [4] * 5
    assert dx.isnan().sum() == 6
    assert dbias.isnan().nonzero().flatten().tolist() == [2, 4]


def test_that_a_bias_that_does_not_fit_is_refused_with_both_shapes(place):
    with pytest.raises(ValueError, match=r"bias is \(4,\); x of \(2, 5\) needs \(5,\)"):
        bias_gelu(place.randn(2, 5), place.randn(4))
    with pytest.raises(ValueError, match=r"bias is \(1,\); x of \(\) needs \(columns,\)"):
        bias_gelu(place.randn(), place.randn(1))
    with pytest.raises(ValueError, match=r"bias is torch.int64; allowed: torch.float32"):
        bias_gelu(place.randn(5), torch.zeros(5, dtype=torch.int64, device=place.device))
    with pytest.raises(ValueError, match=f"bias is on meta; x is on {place.device}"):
        bias_gelu(place.randn(5), torch.zeros(5, device="meta"))


@pytest.mark.gpu
def test_that_rows_beyond_two_to_the_31_elements_are_reached():
    rows, columns = 2**20 + 3, 2064  # 4.3 GB in bfloat16
    x = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    x[-5:] = torch.randn(5, columns, device="cuda")
    bias = torch.randn(columns, device="cuda")
    dy = torch.zeros_like(x)
    dy[-5:] = 1
    y, dx, dbias = with_gradients(bias_gelu, x, bias, dy)
    y_tail, dx_tail, dbias_tail = with_gradients(bias_gelu, x[-5:], bias, dy[-5:])
    assert torch.equal(y[-5:], y_tail)
    assert torch.equal(dx[-5:], dx_tail)
    torch.testing.assert_close(dbias, dbias_tail, rtol=1e-6, atol=1e-6)
    assert (y[7] == y[0]).all()
