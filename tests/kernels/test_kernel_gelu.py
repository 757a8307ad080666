"""kernels/gelu.py against its formula in float64 and against torch's own fused GeLU."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu as torch_gelu
from waits import watched_waits

from explorer.kernels import reference
from explorer.kernels.gelu import gelu

# One block, none, many of both block sizes, and shapes that are no multiple of either (1024 and 4096).
SHAPES = [(), (0,), (3, 0, 5), (1,), (7,), (1023,), (1024,), (5, 1031), (2, 3, 257), ((1 << 20) + 4099,)]


def exact(x, dy):
    """y and dx in float64."""
    x = x.detach().double().requires_grad_()
    y = reference.gelu(x)
    (dx,) = torch.autograd.grad(y, x, dy.double())
    return y.detach(), dx


def with_gradient(function, x, dy):
    x = x.detach().requires_grad_()
    y = function(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    return y.detach(), dx


def torchs(x):
    return torch_gelu(x, approximate="tanh")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_that_value_and_gradient_are_as_exact_as_torchs(place, shape, as_exact_as_torch):
    x, dy = place.randn(*shape, seed=1, scale=3), place.randn(*shape, seed=2)
    y, dx = with_gradient(gelu, x, dy)
    y_torch, dx_torch = with_gradient(torchs, x, dy)
    y_exact, dx_exact = exact(x, dy)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert (dx.dtype, dx.shape) == (x.dtype, x.shape)
    as_exact_as_torch(y, y_torch, y_exact)
    as_exact_as_torch(dx, dx_torch, dx_exact)


def test_that_the_value_is_the_same_without_a_gradient(place):
    x = place.randn(1031)
    with torch.no_grad():
        assert torch.equal(gelu(x.requires_grad_()), gelu(x.detach()))
    assert torch.equal(gelu(x.requires_grad_()), gelu(x.detach()))


def test_that_the_far_tail_keeps_its_relative_precision(place):
    # At -9 the value is 1.3e-28, and 1 + tanh(u) is zero even in float64: the reference is x sigmoid(2 u).
    x = torch.linspace(-9, -3, 701).to(place.device, torch.float32)
    exact_x = x.double()
    exact_y = exact_x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (exact_x + 0.044715 * exact_x**3))
    # 2 u reaches 66 and carries some 3 roundings of 2^-24 each, so s is known to 1.2e-5. Measured: 6.6e-6.
    assert ((gelu(x).double() - exact_y) / exact_y).abs().max().item() < 1.2e-5


def test_that_extreme_values_give_what_the_formula_gives(place):
    large = 1e4
    x = torch.tensor([large, -large, 60000.0, -60000.0, 0.0, math.inf, -math.inf, math.nan])
    x = x.to(place.device, place.dtype)
    y, dx = with_gradient(gelu, x, torch.ones_like(x))
    expected = [x[0].item(), 0, x[2].item(), 0, 0, math.inf, math.nan, math.nan]
    torch.testing.assert_close(y.float().cpu(), torch.tensor(expected), rtol=0, atol=0, equal_nan=True)
    slopes = torch.tensor([1, 0, 1, 0, 0.5, math.nan, math.nan, math.nan])
    torch.testing.assert_close(dx.float().cpu(), slopes, rtol=0, atol=0, equal_nan=True)


def test_that_the_slope_is_right_where_the_square_overflows(place):
    if place.dtype == torch.float16:
        pytest.skip("float16 ends at 65504")
    x = torch.tensor([1e20, -1e20, 3e38, -3e38]).to(place.device, place.dtype)
    _, dx = with_gradient(gelu, x, torch.ones_like(x))
    assert dx.tolist() == [1, 0, 1, 0]


LAYOUTS = {
    "transposed": lambda t: t.transpose(0, 2),
    "every second": lambda t: t[:, ::2],
    "last elements": lambda t: t[..., 3:],
    "misaligned": lambda t: t.flatten()[1:],
    "expanded": lambda t: t[:1].expand(7, -1, -1),
    "single rows": lambda t: t[:, :1].transpose(0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_that_any_strides_give_the_values_of_a_contiguous_copy(place, layout):
    x, dy = LAYOUTS[layout](place.randn(6, 38, 41, seed=3, scale=2)), place.randn(1, seed=4)
    dy = place.randn(*x.shape, seed=4)
    y, dx = with_gradient(gelu, x, dy)
    y_contiguous, dx_contiguous = with_gradient(gelu, x.contiguous(), dy)
    assert torch.equal(y, y_contiguous)
    assert torch.equal(dx, dx_contiguous)
    # A gradient with gaps, one with the layout of x, one that is a single number expanded.
    gaps = torch.stack([dy, dy], -1)[..., 0]
    alike = torch.empty_like(x).copy_(dy)
    for other in (gaps, alike):
        assert torch.equal(with_gradient(gelu, x, other)[1], dx_contiguous)
    expanded = dy.flatten()[:1].reshape([1] * x.ndim).expand(x.shape)
    assert torch.equal(
        with_gradient(gelu, x, expanded)[1], with_gradient(gelu, x.contiguous(), expanded.contiguous())[1]
    )


def test_that_a_transposed_input_is_read_in_its_own_layout(place):
    x = place.randn(33, 65).t()
    assert gelu(x).stride() == x.stride()


def test_that_the_gradient_needs_nothing_kept_but_the_input(place):
    kept = []
    x = place.randn(100).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        gelu(x)
    assert [t.data_ptr() for t in kept] == [x.data_ptr()]


def test_that_a_second_derivative_is_refused(place):
    x = place.randn(10).requires_grad_()
    dy = place.randn(10, seed=1).requires_grad_()
    (dx,) = torch.autograd.grad(gelu(x), x, dy, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.complex64], ids=str)
def test_that_another_dtype_is_refused_with_those_allowed(place, dtype):
    with pytest.raises(ValueError, match=f"x is {dtype}; allowed: torch.float32, torch.float16"):
        gelu(torch.zeros(3, dtype=dtype, device=place.device))


def test_that_another_device_is_refused_with_the_one_allowed(place):
    with pytest.raises(ValueError, match=f"x is on meta; allowed: {place.device}"):
        gelu(torch.zeros(3, device="meta"))


@pytest.mark.gpu
def test_that_elements_beyond_two_to_the_31_are_reached():
    n = 2**31 + 4099  # 4.3 GB in bfloat16
    x = torch.zeros(n, dtype=torch.bfloat16, device="cuda")
    x[-5000:] = torch.linspace(-4, 4, 5000, device="cuda")
    x[:5000] = torch.linspace(4, -4, 5000, device="cuda")
    x.requires_grad_()
    y = gelu(x)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(x))
    for part in (slice(None, 5000), slice(-5000, None)):
        tail = x.detach()[part].clone()
        y_tail, dx_tail = with_gradient(gelu, tail, torch.ones_like(tail))
        assert torch.equal(y.detach()[part], y_tail)
        assert torch.equal(dx[part], dx_tail)
    assert (dx[5000:-5000] == 0.5).all()


@pytest.mark.gpu
def test_that_a_call_does_not_synchronise():
    x = torch.randn(1000, device="cuda").requires_grad_()
    gelu(x).sum().backward()
    with watched_waits("error"):
        gelu(x).sum().backward()
