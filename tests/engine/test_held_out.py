"""Held-out text, and what a model makes of it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine import held_out
from explorer.engine.held_out import held_out_text, perplexity
from explorer.engine.text import python_source
from explorer.engine.tokenizer import bundled
from explorer.optimizations import registry
from explorer.optimizations.base import Run

TEXT = "def f(x):\n    return x + 1\n\n" * 12
"""Three windows of the tiny model's 64 positions, the last one not full."""


@pytest.fixture
def run(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(held_out, "held_out_text", lambda characters: TEXT[:characters])
    model = GPT2LMHeadModel.from_pretrained(tiny_model).eval()
    return Run(config=RunConfig(workload="generate"), device=torch.device("cpu"), model=model)


def by_definition(run: Run, ids: list[int]) -> float:
    """In float64, each window's loss by transformers."""
    model = run.model.double()
    windows = [torch.tensor([ids[start : start + 64]]) for start in range(0, len(ids), 64)]
    with torch.no_grad():
        sums = [float(model(input_ids=w, labels=w).loss) * (w.shape[1] - 1) for w in windows]
    run.model.float()
    return math.exp(sum(sums) / (len(ids) - len(windows)))


def test_that_perplexity_is_that_of_every_token_but_each_windows_first(run: Run) -> None:
    ids = bundled().encode(TEXT)
    assert 128 < len(ids) < 192
    assert perplexity(run, bundled()) == pytest.approx(by_definition(run, ids), rel=1e-6)


def test_that_no_more_than_the_first_tokens_of_the_text_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "TOKENS", {"cpu": 70})
    assert perplexity(run, bundled()) == pytest.approx(by_definition(run, bundled().encode(TEXT)[:70]), rel=1e-6)


@pytest.mark.parametrize("level", ["bf16", "int8"])
def test_that_coarser_weights_show_in_it(run: Run, level: str) -> None:
    exact = perplexity(run, bundled())
    with registry.by_name("weight_dtype").applied(run, level):
        coarse = perplexity(run, bundled())
    assert exact is not None
    assert coarse is not None
    assert 1e-7 < abs(coarse / exact - 1) < 1e-3  # 4.5e-5 and 8.2e-6 seen


def test_that_a_model_whose_logits_are_not_finite_has_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.model.transformer.ln_f.weight.data[:] = math.nan
    assert perplexity(run, bundled()) is None


def test_that_without_a_text_there_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "held_out_text", lambda characters: "")
    assert perplexity(run, bundled()) is None


def test_that_the_text_is_of_files_that_mini_never_saw() -> None:
    text = held_out_text(3000)
    assert len(text) == 3000
    apart = []
    for document in python_source().documents():
        if int(hashlib.sha256(document.encode()).hexdigest()[:8], 16) % 100 == 0:
            apart.append(document)
            if sum(map(len, apart)) >= 3000:
                break
    assert "".join(apart)[:3000] == text
