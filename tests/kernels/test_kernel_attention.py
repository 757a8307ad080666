"""kernels/attention.py against softmax(q k^T) v in float64 and against torch's own attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from explorer.kernels import reference
from explorer.kernels.attention import causal_attention


def torchs(q, k, v, scale=None):
    return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def with_gradients(function, inputs, do, **options):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    o = function(*inputs, **options)
    return o.detach(), *torch.autograd.grad(o, inputs, do)


def case(place, *shape):
    """q, k, v and the gradient of the output; the scores have a standard deviation of about 1."""
    return [place.randn(*shape, seed=seed) for seed in (1, 2, 3)], place.randn(*shape, seed=4)


def compare(place, as_exact_as_torch, inputs, do, **options):
    ours = with_gradients(causal_attention, inputs, do, **options)
    by_torch = with_gradients(torchs, inputs, do, **options)
    exact = with_gradients(reference.causal_attention, [t.double() for t in inputs], do.double(), **options)
    q, k, v = (tensor.double() for tensor in inputs)
    scores = q @ k.mT / q.shape[3] ** 0.5
    for result, theirs, right in zip(ours, by_torch, exact, strict=True):
        assert result.dtype == place.dtype
        terms = 0.0
        if right.numel():
            # A score is rounded once at least, which its exponential passes on.
            terms = (scores.abs().max() * right.abs().max() / 4).item()
            if place.device == "cpu":
                # numpy's product adds up in another order than its sum along a row: what cancels elsewhere does not.
                product = (do.double() @ v.mT).abs().max() * max(q.abs().max(), k.abs().max()) / q.shape[3] ** 0.5
                terms = max(terms, product.item())
        as_exact_as_torch(result, theirs, right, terms=terms)


# Blocks are of 32, 64 or 128 tokens: one token, less than a block, whole blocks, a last one with a single token.
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 16), (2, 2, 7, 32), (1, 2, 128, 16), (1, 1, 129, 64), (2, 1, 33, 128), (0, 2, 5, 16)], ids=str
)
def test_that_output_and_gradients_are_as_exact_as_torchs(place, shape, as_exact_as_torch):
    compare(place, as_exact_as_torch, *case(place, *shape))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 3, 1024, 64), (1, 2, 1000, 128), (1, 25, 257, 32), (1, 1, 4097, 64)], ids=str)
def test_that_long_sequences_are_as_exact_as_torchs(shape, place, as_exact_as_torch):
    compare(place, as_exact_as_torch, *case(place, *shape))


def test_that_another_scale_is_used(place, as_exact_as_torch):
    compare(place, as_exact_as_torch, *case(place, 1, 1, 40, 16), scale=0.6)


def test_that_a_token_sees_nothing_of_those_after_it(place):
    inputs, do = case(place, 1, 1, 70, 16)
    do[:, :, 41:] = 0
    before = with_gradients(causal_attention, inputs, do)
    for tensor in inputs:
        tensor[:, :, 41:] += 5
    after = with_gradients(causal_attention, inputs, do)
    # Neither the first 41 outputs nor, as the other outputs have no gradient, any gradient depends on the rest.
    assert torch.equal(after[0][:, :, :41], before[0][:, :, :41])
    assert not torch.equal(after[0][:, :, 41:], before[0][:, :, 41:])
    for gradient, as_before in zip(after[1:], before[1:], strict=True):
        assert torch.equal(gradient, as_before)
        assert not gradient[:, :, 41:].any()


def test_that_large_scores_neither_overflow_nor_lose_the_rest(place, as_exact_as_torch):
    inputs, do = case(place, 1, 1, 50, 16)
    # Scores of up to some 600 in both directions: exp of them would overflow without the largest taken off.
    inputs = [inputs[0] * 15, inputs[1] * 15, inputs[2]]
    compare(place, as_exact_as_torch, inputs, do)


def test_that_views_of_one_projection_are_read_where_they_lie(place, as_exact_as_torch):
    B, T, H, D = 2, 37, 2, 16
    projection = place.randn(B, T, 3 * H * D, seed=5)
    views = [part.view(B, T, H, D).transpose(1, 2) for part in projection.split(H * D, 2)]
    do = place.randn(B, T, H, D, seed=6).transpose(1, 2)
    compare(place, as_exact_as_torch, views, do)
    o = causal_attention(*views)
    # Joined again the heads are a view, as GPT-2 wants them.
    assert o.transpose(1, 2).is_contiguous()
    contiguous = with_gradients(causal_attention, [t.contiguous() for t in views], do.contiguous())
    for a, b in zip(with_gradients(causal_attention, views, do), contiguous, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("turn", ["k alone", "all", "gradient expanded"])
def test_that_other_strides_do_not_matter(place, turn):
    (q, k, v), do = case(place, 2, 2, 7, 16)

    def turned(t):
        return t.transpose(2, 3).contiguous().transpose(2, 3)

    inputs = {"k alone": [q, turned(k), v], "all": [turned(q), turned(k), turned(v)]}.get(turn, [q, k, v])
    if turn == "gradient expanded":
        do = do[:, :, :1].expand(do.shape)
    straight = with_gradients(causal_attention, [q, k, v], do.contiguous())
    for a, b in zip(with_gradients(causal_attention, inputs, do), straight, strict=True):
        assert torch.equal(a, b)


def test_that_the_gradients_have_the_same_bits_each_time(place):
    inputs, do = case(place, 1, 2, 70, 16)
    first, second = (with_gradients(causal_attention, inputs, do) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_that_the_output_is_the_same_without_a_gradient(place):
    inputs, do = case(place, 1, 1, 40, 16)
    assert torch.equal(causal_attention(*inputs), with_gradients(causal_attention, inputs, do)[0])


def test_that_what_does_not_fit_is_refused_with_both_sides(place):
    (q, k, v), _ = case(place, 1, 1, 4, 16)
    with pytest.raises(ValueError, match=r"k is \(1, 1, 3, 16\) .*; q is \(1, 1, 4, 16\)"):
        causal_attention(q, k[:, :, 1:], v)
    with pytest.raises(ValueError, match=r"q is \(1, 1, 4, 15\); allowed: .* 16, 32, 64, 128"):
        causal_attention(q[..., 1:], k[..., 1:], v[..., 1:])
    with pytest.raises(ValueError, match=r"q is \(1, 4, 16\); allowed: \(B, H, T, D\)"):
        causal_attention(q[0], k[0], v[0])
    with pytest.raises(ValueError, match=r"v is torch.float64; allowed"):
        causal_attention(q, k, v.double())
    other = torch.float16 if place.dtype == torch.float32 else torch.float32
    with pytest.raises(ValueError, match=f"k is .* of {other} .*; q is .* of {place.dtype}"):
        causal_attention(q, k.to(other), v)


@pytest.mark.gpu
def test_that_rows_beyond_two_to_the_31_elements_are_reached():
    # q, k and v are views of one (T, 3 H D) projection of 2.3e9 elements; only the last head lies beyond 2^31.
    B, T, H, D = 33, 1024, 364, 64
    projection = torch.zeros(B, T, 3 * H * D, dtype=torch.bfloat16, device="cuda")
    assert projection.numel() > 2**31
    projection[-1] = torch.randn(T, 3 * H * D, device="cuda")
    q, k, v = (part.view(B, T, H, D).transpose(1, 2) for part in projection.split(H * D, 2))
    with torch.no_grad():
        o = causal_attention(q, k, v)[-1]
        assert torch.equal(o, causal_attention(q[-1:], k[-1:], v[-1:])[0])


def test_that_torch_compile_takes_each_way_for_one_operator(place):
    inputs, do = case(place, 1, 2, 9, 16)
    inputs = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in inputs]
    compiled = torch.compile(causal_attention, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(
        with_gradients(compiled, inputs, do), with_gradients(causal_attention, inputs, do), strict=True
    ):
        assert found.stride() == wanted.stride()
        assert torch.equal(found, wanted)
    torch._dynamo.reset()
