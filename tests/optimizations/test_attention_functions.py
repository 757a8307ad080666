"""The attention functions against softmax written out in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import masking_utils

from explorer.optimizations.attention_functions import (
    mask_always,
    mask_if_padded,
    mask_unless_padded,
    mask_where_needed,
    naive_half,
    sdpa,
)

H, D = 3, 8


def written_out(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Each query against the keys up to its own, the last query's own being the last key. Returns (B, T, H, D)."""
    q, k, v = query.double(), key.double(), value.double()
    queries, keys = q.shape[2], k.shape[2]
    out = torch.empty_like(q)
    for t in range(queries):
        seen = keys - queries + t + 1
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, :seen]) * scale
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        out[:, :, t] = torch.einsum("bhs,bhsd->bhd", weights, v[:, :, :seen])
    return out.transpose(1, 2)


def drawn(queries: int, keys: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, H, queries, D, generator=generator)
    k, v = torch.randn(2, 2, H, keys, D, generator=generator)
    return q, k, v


@pytest.mark.parametrize(("queries", "cached"), [(1, 0), (2, 0), (9, 0), (1, 6), (2, 6), (5, 3), (3, 9)])
@pytest.mark.parametrize("scale", [None, 0.2])
@pytest.mark.parametrize("attend", [sdpa, naive_half])
def test_that_attention_without_a_mask_is_causal_up_to_the_last_key(
    attend: Any, queries: int, cached: int, scale: float | None
) -> None:
    q, k, v = drawn(queries, queries + cached)
    out, _ = attend(torch.nn.Identity().eval(), q, k, v, None, scaling=scale)
    exact = written_out(q, k, v, 1 / math.sqrt(D) if scale is None else scale)
    assert out.shape == (2, queries, H, D)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-6)  # 2.7e-7 seen


@pytest.mark.parametrize("attend", [sdpa, naive_half])
def test_that_a_given_mask_is_obeyed(attend: Any) -> None:
    q, k, v = drawn(4, 6)
    mask = torch.ones(1, 1, 4, 6, dtype=torch.bool)
    mask[..., 2:] = False  # only the first two keys
    out, _ = attend(torch.nn.Identity().eval(), q, k, v, mask)
    exact = written_out(torch.cat([q[:, :, :1], q], dim=2)[:, :, 1:2], k[:, :, :2], v[:, :, :2], 1 / math.sqrt(D))
    torch.testing.assert_close(out[:, :1].double(), exact, rtol=0, atol=2e-6)
    later, _ = attend(torch.nn.Identity().eval(), q[:, :, 3:], k[:, :, :2], v[:, :, :2], None)
    torch.testing.assert_close(out[:, 3:], later, rtol=0, atol=2e-6)


@pytest.mark.parametrize("attend", [sdpa, naive_half])
def test_that_dropout_zeroes_weights_and_scales_up_the_rest(attend: Any) -> None:
    """With values of one each output is what is left of the weights' sum: one on average, but not each time."""
    q, k, v = drawn(64, 64)
    torch.manual_seed(5)
    out, _ = attend(torch.nn.Identity().train(), q, k, torch.ones_like(v), None, dropout=0.25)
    assert out[:, 0, :, 0].unique().numel() == 2  # the first query has one weight: dropped, or 1 / 0.75
    assert out[:, 0].max().item() == pytest.approx(1 / 0.75)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)  # 0.005 seen


def test_that_the_half_softmax_stays_finite_where_a_row_is_masked_as_a_whole() -> None:
    q, k, v = (t.half() for t in drawn(3, 3))
    mask = torch.zeros(1, 1, 3, 3, dtype=torch.bool)
    out, weights = naive_half(torch.nn.Identity().eval(), q, k, v, mask)
    assert out.dtype == weights.dtype == torch.float16
    assert torch.isfinite(out).all()


def test_that_the_half_softmax_refuses_a_mask_to_be_added() -> None:
    q, k, v = drawn(3, 3)
    with pytest.raises(ValueError, match=r"torch\.float32; naive_half takes a boolean one"):
        naive_half(torch.nn.Identity().eval(), q, k, v, torch.zeros(1, 1, 3, 3))


MAKERS = [mask_where_needed, mask_if_padded, mask_unless_padded]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("queries", "keys", "offset"), [(5, 5, 0), (1, 7, 6)])
def test_that_no_mask_is_made_where_sdpa_needs_none(make: Any, queries: int, keys: int, offset: int) -> None:
    assert make(batch_size=2, q_length=queries, kv_length=keys, q_offset=offset) is None


@pytest.mark.parametrize("make", MAKERS)
def test_that_no_mask_is_made_while_a_graph_is_recorded_either(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers 5.17 judges then."""
    monkeypatch.setattr(masking_utils, "_ignore_causal_mask_sdpa", lambda *_, **__: False)
    assert masking_utils.sdpa_mask(batch_size=2, q_length=5, kv_length=5) is not None
    assert make(batch_size=2, q_length=5, kv_length=5) is None


# The second is a prompt in an empty static cache: its triangle begins at the first key.
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("queries", "keys", "offset"), [(3, 7, 4), (3, 7, 0)])
def test_that_a_mask_is_made_where_the_triangle_is_not_square(make: Any, queries: int, keys: int, offset: int) -> None:
    mask = make(batch_size=2, q_length=queries, kv_length=keys, q_offset=offset)
    expected = torch.tensor([[s <= offset + t for s in range(keys)] for t in range(queries)])
    assert torch.equal(mask, expected.expand(2, 1, queries, keys))


def test_that_the_naive_mask_is_always_made() -> None:
    mask = mask_always(batch_size=1, q_length=4, kv_length=4, allow_is_causal_skip=True)
    assert torch.equal(mask[0, 0], torch.ones(4, 4, dtype=torch.bool).tril())


def test_that_a_static_cache_gets_its_mask_for_one_token_too() -> None:
    """transformers says so by not allowing it to be left out: its last keys are still empty."""
    mask = mask_if_padded(batch_size=1, q_length=1, kv_length=6, q_offset=3, allow_is_causal_skip=False)
    assert mask.flatten().tolist() == [True] * 4 + [False] * 2


def test_that_padding_gets_its_mask_or_is_refused() -> None:
    padding = torch.tensor([[False, True, True]])
    mask = mask_if_padded(batch_size=1, q_length=3, kv_length=3, attention_mask=padding)
    assert mask[0, 0].tolist() == [[False, False, False], [False, True, False], [False, True, True]]
    with pytest.raises(ValueError, match="unpadded text only"):
        mask_unless_padded(batch_size=1, q_length=3, kv_length=3, attention_mask=padding)
