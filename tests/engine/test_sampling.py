from __future__ import annotations

import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from explorer.engine.sampling import choose, penalised
from explorer.optimizations.rows import Rows


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.3, 5, 1.0), (1.0, 0, 0.6), (0.8, 8, 0.7)]
)
def test_that_tokens_are_drawn_as_transformers_processors_say(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(1, 24, generator=torch.Generator().manual_seed(3)) * 2
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        processors.append(TopPLogitsWarper(top_p))
    expected = processors(torch.zeros(1, 1, dtype=torch.long), logits.clone()).softmax(-1)[0]

    draws = 200_000
    chosen = choose(
        logits.expand(draws, -1),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=torch.Generator().manual_seed(5),
    )
    assert chosen.shape == (draws, 1)
    seen = torch.bincount(chosen[:, 0], minlength=24) / draws
    assert torch.equal(seen > 0, expected > 0) or ((seen > 0) != (expected > 0)).logical_and(expected > 1e-4).sum() == 0
    # Five standard deviations of a frequency over 200,000 draws.
    allowed = 5 * (expected * (1 - expected) / draws).sqrt() + 1e-6
    assert ((seen - expected).abs() <= allowed).all()
    assert (seen[expected == 0] == 0).all()


def test_that_temperature_zero_takes_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0], [5.0, 1.0, 4.9]])
    generator = torch.Generator().manual_seed(0)
    assert choose(logits, temperature=0, top_k=0, top_p=1.0, generator=generator).tolist() == [[1], [0]]


@pytest.mark.parametrize("penalty", [0.7, 1.3, 5.0])
def test_that_what_was_seen_is_penalised_as_transformers_does(penalty: float) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 24, generator=generator) * 2
    logits[:, 20:] = -torch.inf
    seen = torch.randint(0, 24, (2, 9), generator=generator)
    assert any(len(row.unique()) < 9 for row in seen), "a token that stands twice loses once"
    expected = RepetitionPenaltyLogitsProcessor(penalty)(seen, logits.clone())
    assert torch.equal(penalised(logits, seen, penalty), expected)
    assert not torch.equal(expected, logits)


def test_that_a_row_has_seen_its_own_text_and_no_empty_slot() -> None:
    prompts = [torch.tensor([5, 6, 7, 8]), torch.tensor([9, 4])]
    rows = Rows.empty(2, 8, torch.device("cpu"))
    rows.begin(prompts)
    assert [set(row.tolist()) for row in rows.seen()] == [{5, 6, 7, 8}, {9, 4}]
    rows.append(torch.tensor([[3], [2]]))
    rows.append(torch.tensor([[1], [9]]))
    assert [set(row.tolist()) for row in rows.seen()] == [{5, 6, 7, 8, 3, 1}, {9, 4, 2}]
