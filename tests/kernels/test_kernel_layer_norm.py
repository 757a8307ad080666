"""kernels/layer_norm.py against the formula in float64 and against torch's LayerNorm."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from explorer.kernels import layer_norm as layer_norm_file
from explorer.kernels import reference
from explorer.kernels.layer_norm import add_layer_norm, layer_norm

# No rows, no columns, one column, widths that are no power of two, rows that are no multiple of a tile's.
SHAPES = [(0, 5), (3, 0), (1,), (3, 1), (7, 33), (2, 5, 64), (5, 768), (3, 1031), (2, 2500)]


def with_gradients(function, inputs, gradients):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [o.detach() for o in outputs] + list(torch.autograd.grad(outputs, inputs, gradients))


def torchs(x, weight, bias, eps=1e-5):
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def torchs_add(x, residual, weight, bias, eps=1e-5):
    return x + residual, torchs(x + residual, weight, bias, eps)


def doubled(tensors):
    return [tensor.double() for tensor in tensors]


def parameters(place, columns):
    # Far from one and zero, and of both signs: one that is ignored shows.
    return place.randn(columns, seed=11, shift=0.5), place.randn(columns, seed=12, shift=-0.5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_that_layer_norm_and_its_gradients_are_as_exact_as_torchs(place, shape, as_exact_as_torch):
    inputs = [place.randn(*shape, seed=1, scale=2, shift=1), *parameters(place, shape[-1])]
    gradients = [place.randn(*shape, seed=2)]
    ours = with_gradients(layer_norm, inputs, gradients)
    exact = with_gradients(reference.layer_norm, doubled(inputs), doubled(gradients))
    for result, by_torch, right in zip(ours, with_gradients(torchs, inputs, gradients), exact, strict=True):
        assert result.dtype == place.dtype
        as_exact_as_torch(result, by_torch, right)


@pytest.mark.parametrize("shape", [(0, 5), (3, 1), (7, 33), (5, 768), (2, 3, 1031)], ids=str)
def test_that_add_layer_norm_and_its_gradients_are_as_exact_as_torchs(place, shape, as_exact_as_torch):
    inputs = [place.randn(*shape, seed=1), place.randn(*shape, seed=3, shift=1), *parameters(place, shape[-1])]
    # One for h itself, as from its later use in the residual stream.
    gradients = [place.randn(*shape, seed=2), place.randn(*shape, seed=4)]
    ours = with_gradients(add_layer_norm, inputs, gradients)
    exact = with_gradients(reference.add_layer_norm, doubled(inputs), doubled(gradients))
    for result, by_torch, right in zip(ours, with_gradients(torchs_add, inputs, gradients), exact, strict=True):
        assert result.dtype == place.dtype
        as_exact_as_torch(result, by_torch, right)


@pytest.mark.parametrize("partials", [1, 2, 5])
def test_that_programs_that_add_many_rows_miss_none(place, partials, as_exact_as_torch, monkeypatch):
    monkeypatch.setattr(layer_norm_file, "PARTIALS", partials)
    inputs, gradients = [place.randn(277, 17, seed=1), *parameters(place, 17)], [place.randn(277, 17, seed=2)]
    ours = with_gradients(layer_norm, inputs, gradients)
    exact = with_gradients(reference.layer_norm, doubled(inputs), doubled(gradients))
    for result, by_torch, right in zip(ours, with_gradients(torchs, inputs, gradients), exact, strict=True):
        as_exact_as_torch(result, by_torch, right)


def test_that_a_stream_in_float32_stays_so_and_the_branch_gets_its_own_dtype(place, as_exact_as_torch):
    x, residual = place.randn(6, 40, seed=1), place.randn(6, 40, seed=2).float() + 1 / 3
    weight, bias = (tensor.float() for tensor in parameters(place, 40))
    gradients = [place.randn(6, 40, seed=3).float(), place.randn(6, 40, seed=4)]
    inputs = [x, residual, weight, bias]
    h, y, dx, dr, dw, db = ours = with_gradients(add_layer_norm, inputs, gradients)
    assert [t.dtype for t in ours] == [torch.float32, place.dtype, place.dtype, *[torch.float32] * 3]
    exact = with_gradients(reference.add_layer_norm, doubled(inputs), doubled(gradients))
    by_torch = with_gradients(torchs_add, [t.float() for t in inputs], [t.float() for t in gradients])
    for result, in_float32, right in zip((h, y, dx, dr, dw, db), by_torch, exact, strict=True):
        as_exact_as_torch(result, in_float32.to(result.dtype), right)


def test_that_a_float32_stream_is_normed_into_the_format_of_the_products(place, as_exact_as_torch):
    """The result in another format than x; its gradient comes in that format, and x's own is of the stream's."""
    x, dy = place.randn(6, 40, seed=1).float() + 1 / 3, place.randn(6, 40, seed=3)
    weight, bias = (tensor.float() for tensor in parameters(place, 40))
    inputs = [x, weight, bias]
    ours = with_gradients(lambda *given: layer_norm(*given, dtype=place.dtype), inputs, [dy])
    assert [t.dtype for t in ours] == [place.dtype, *[torch.float32] * 3]
    exact = with_gradients(reference.layer_norm, doubled(inputs), doubled([dy]))
    by_torch = with_gradients(torchs, inputs, [dy.float()])
    for result, in_float32, right in zip(ours, by_torch, exact, strict=True):
        as_exact_as_torch(result, in_float32.to(result.dtype), right)


def test_that_torch_compile_takes_each_way_as_a_whole(place):
    x, weight, bias = place.randn(7, 33, seed=1), *(tensor.float() for tensor in parameters(place, 33))

    def plain(x, weight, bias):
        return layer_norm(x * 2, weight, bias, dtype=torch.float32) * 3

    traced = torch.compile(plain, backend="aot_eager", fullgraph=True, dynamic=False)
    dy = [place.randn(7, 33, seed=2).float()]
    for ours, right in zip(*(with_gradients(f, [x, weight, bias], dy) for f in (traced, plain)), strict=True):
        assert torch.equal(ours, right)
    torch._dynamo.reset()


def test_that_a_large_mean_does_not_cost_the_variance(place, as_exact_as_torch):
    # The mean of squares minus the square of the mean would lose all of it in float32.
    x = (place.randn(4, 512, seed=1).float() + 5000).to(place.dtype)
    inputs, gradients = [x, *parameters(place, 512)], [place.randn(4, 512, seed=2)]
    ours = with_gradients(layer_norm, inputs, gradients)
    exact = with_gradients(reference.layer_norm, doubled(inputs), doubled(gradients))
    for result, by_torch, right in zip(ours, with_gradients(torchs, inputs, gradients), exact, strict=True):
        as_exact_as_torch(result, by_torch, right)


def test_that_eps_is_used(place, as_exact_as_torch):
    x, (weight, bias) = place.randn(3, 8, scale=0.01), parameters(place, 8)
    for eps in (1e-5, 0.3):
        exact = reference.layer_norm(x.double(), weight.double(), bias.double(), eps)
        as_exact_as_torch(layer_norm(x, weight, bias, eps), torchs(x, weight, bias, eps), exact)


def test_that_a_constant_row_gives_the_bias_and_a_bad_row_only_itself(place):
    x, (weight, bias) = place.randn(5, 12, seed=1), parameters(place, 12)
    x[0], x[1, 3], x[2, 4] = 7.0, math.nan, math.inf
    y = layer_norm(x, weight, bias)
    assert torch.equal(y[0], bias)
    assert y[1:3].isnan().all()
    assert torch.equal(y[3:], layer_norm(x[3:], weight, bias))


def test_that_the_gradients_have_the_same_bits_each_time(place):
    inputs, gradients = [place.randn(90, 20, seed=1), *parameters(place, 20)], [place.randn(90, 20, seed=2)]
    first, second = (with_gradients(layer_norm, inputs, gradients) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_that_strides_do_not_matter(place):
    x, residual, dh, dy = (place.randn(24, 18, seed=seed).t() for seed in range(4))
    weight, bias = (tensor[::2] for tensor in parameters(place, 48))
    inputs, gradients = [x, residual, weight, bias], [dh, dy]
    ours = with_gradients(add_layer_norm, inputs, gradients)
    contiguous = with_gradients(add_layer_norm, [t.contiguous() for t in inputs], [t.contiguous() for t in gradients])
    assert all(torch.equal(a, b) for a, b in zip(ours, contiguous, strict=True))


def test_that_what_does_not_fit_is_refused_with_both_sides(place):
    weight, bias = parameters(place, 5)
    with pytest.raises(ValueError, match=r"weight is \(5,\); x of \(2, 6\) needs \(6,\)"):
        layer_norm(place.randn(2, 6), weight, bias)
    with pytest.raises(ValueError, match=r"bias is \(4,\); x of \(2, 5\) needs \(5,\)"):
        layer_norm(place.randn(2, 5), weight, bias[:4])
    with pytest.raises(ValueError, match=r"residual is \(1, 5\) on .*; x is \(2, 5\)"):
        add_layer_norm(place.randn(2, 5), place.randn(1, 5), weight, bias)
    with pytest.raises(ValueError, match="16385 columns; allowed: at most 16384"):
        layer_norm(place.randn(16385), *parameters(place, 16385))
    with pytest.raises(ValueError, match=r"x is torch\.float64; allowed"):
        layer_norm(place.randn(2, 5).double(), weight, bias)
    with pytest.raises(ValueError, match=r"dtype is torch\.float64; allowed"):
        layer_norm(place.randn(2, 5), weight, bias, dtype=torch.float64)


@pytest.mark.gpu
def test_that_rows_beyond_two_to_the_31_elements_are_reached():
    rows, columns = 2**20 + 3, 2064  # 4.3 GB in bfloat16
    x = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    x[-5:] = torch.randn(5, columns, device="cuda")
    weight, bias = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")
    dy = torch.zeros_like(x)
    dy[-5:] = torch.randn(5, columns, device="cuda")
    y, dx, dw, db = with_gradients(layer_norm, [x, weight, bias], [dy])
    tail = with_gradients(layer_norm, [x[-5:], weight, bias], [dy[-5:]])
    assert torch.equal(y[-5:], tail[0])
    assert torch.equal(dx[-5:], tail[1])
    torch.testing.assert_close(dw, tail[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(db, tail[3], rtol=1e-5, atol=1e-5)
