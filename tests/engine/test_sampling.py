from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from explorer.config import RunConfig
from explorer.engine.generation import GenerationLoop, choose
from explorer.engine.telemetry import Telemetry
from explorer.engine.tokenizer import bundled
from explorer.optimizations.base import Run
from explorer.results.environment import DeviceInfo

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=2**33)


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


@pytest.fixture
def tiny(tiny_model: Path) -> GPT2LMHeadModel:
    return GPT2LMHeadModel.from_pretrained(tiny_model, attn_implementation="eager")


def generated(
    model: GPT2LMHeadModel, config: RunConfig, restart_after: int | None = None
) -> tuple[list[list[int]], str]:
    """All tokens (a list a sequence) and the text of a whole generation; ``restart_after``: a new segment there."""
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(Run(config=config, device=torch.device("cpu"), model=model), bundled(), 64, telemetry)
    loop.begin_segment(0)
    while not loop.finished:
        if loop.next_step == restart_after:
            loop.collect(all_of_them=True)
            loop.begin_segment(1)
        loop.step()
    samples = loop.collect(all_of_them=True)
    telemetry.close()
    assert samples[0].phase == ("prefill" if restart_after is None else samples[0].phase)
    return loop._tokens[:, : loop._length].tolist(), loop.take_text()


@pytest.mark.parametrize("restart_after", [None, 7])
def test_that_greedy_tokens_are_those_of_transformers_generate(
    tiny: GPT2LMHeadModel, restart_after: int | None
) -> None:
    config = RunConfig(
        workload="generate", batch=2, temperature=0.0, max_new_tokens=20, prompt="def add(a, b):", seq=64
    )
    prompt = bundled().encode(config.prompt)
    tiny.eval()
    reference = tiny.generate(
        torch.tensor([prompt, prompt]),
        attention_mask=torch.ones(2, len(prompt), dtype=torch.long),
        max_new_tokens=20,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens, text = generated(tiny, config, restart_after)
    assert tokens == reference.tolist()
    assert bundled().decode(tokens[0][len(prompt) :]).startswith(text)


def test_that_the_same_seed_gives_the_same_text_and_rows_part_ways(tiny: GPT2LMHeadModel) -> None:
    config = RunConfig(workload="generate", batch=3, temperature=1.0, max_new_tokens=16, prompt="x = ", seed=11)
    first, text = generated(tiny, config)
    again, text_again = generated(tiny, config)
    assert first == again
    assert text == text_again
    assert first[0] != first[1]


def test_that_a_text_longer_than_the_context_is_refused_with_what_fits(tiny: GPT2LMHeadModel) -> None:
    config = RunConfig(workload="generate", batch=1, max_new_tokens=64, prompt="def add(a, b):")
    used = len(bundled().encode(config.prompt))
    telemetry = Telemetry(CPU)
    try:
        with pytest.raises(ValueError, match=f"at most {64 - used} new tokens"):
            GenerationLoop(Run(config=config, device=torch.device("cpu"), model=tiny), bundled(), 64, telemetry)
    finally:
        telemetry.close()


def test_that_only_tokens_that_the_tokenizer_knows_are_chosen() -> None:
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=3 * 8192))
    config = RunConfig(workload="generate", batch=4, temperature=1.5, top_k=0, max_new_tokens=16, prompt="x")
    tokens, _ = generated(model, config)
    assert all(token < bundled().vocabulary for row in tokens for token in row)
