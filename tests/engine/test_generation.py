"""Generated text against transformers' own generate."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine.generation import GenerationLoop
from explorer.engine.telemetry import Telemetry
from explorer.engine.tokenizer import bundled
from explorer.optimizations import registry
from explorer.optimizations.base import Run
from explorer.results.environment import DeviceInfo

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=2**33)


@pytest.fixture
def tiny(tiny_model: Path) -> GPT2LMHeadModel:
    return GPT2LMHeadModel.from_pretrained(tiny_model, attn_implementation="eager")


def generated(
    model: GPT2LMHeadModel, config: RunConfig, restart_after: int | None = None
) -> tuple[list[list[int]], str]:
    """All tokens in the context (a list a sequence) and the text; ``restart_after``: a new segment there."""
    run = Run(config=config, device=torch.device("cpu"), model=model)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, bundled(), model.config.n_positions, telemetry)
    with ExitStack() as stack:
        registry.enter(stack, run)
        loop.begin_segment(0)
        while not loop.finished:
            if loop.next_step == restart_after:
                loop.collect(all_of_them=True)
                loop.begin_segment(1)
            loop.step()
        samples = loop.collect(all_of_them=True)
    telemetry.close()
    assert [sample.step for sample in samples][-1] == config.max_new_tokens - 1
    return loop.tokens.tolist(), loop.end_text()


def by_transformers(model: GPT2LMHeadModel, prompt: list[int], new_tokens: int) -> list[int]:
    """What transformers' generate makes of ``prompt``, greedily, on its own default path in float32."""
    made = model.eval().generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return made[0].tolist()


PROMPTS = [
    "def add(a, b):", "import os", "x", "class A:\n    def f(self):\n        return", "for i in range(10):\n",
    "\n", "    ", "try:\n    pass\nexcept", "with open(", "print('hello", "# a comment", '"""A module."""\n',
    "if x == 1", "return None", "lambda x: x", "a = [1, 2, 3]", "assert f(", "raise ValueError(", "é", "0123456789",
]  # fmt: skip
CACHES = [
    pytest.param({"kv_cache": cache, "attention": attention}, id=f"{cache}-{attention}")
    for cache in ("dynamic", "off", "static")
    for attention in ("naive", "sdpa")
]


@pytest.mark.parametrize("levels", CACHES)
def test_that_greedy_tokens_are_those_of_transformers_generate(tiny: GPT2LMHeadModel, levels: dict[str, str]) -> None:
    for prompt in PROMPTS:
        config = RunConfig(
            workload="generate",
            batch=1,
            temperature=0.0,
            max_new_tokens=24,
            prompt=prompt,
            levels=tuple(levels.items()),
        )
        ids = bundled().encode(prompt)
        expected = by_transformers(tiny, ids, 24)
        tokens, text = generated(tiny, config)
        assert tokens == [expected]
        assert text == bundled().decode(expected[len(ids) :])


@pytest.mark.parametrize("levels", CACHES)
def test_that_a_segment_that_begins_within_the_text_changes_no_token(
    tiny: GPT2LMHeadModel, levels: dict[str, str]
) -> None:
    config = RunConfig(
        workload="generate",
        batch=2,
        temperature=0.0,
        max_new_tokens=20,
        prompt=PROMPTS[0],
        levels=tuple(levels.items()),
    )
    expected = by_transformers(tiny, bundled().encode(PROMPTS[0]), 20)
    assert generated(tiny, config, restart_after=7)[0] == [expected, expected]


def test_that_a_text_that_ends_within_a_character_says_so(tiny: GPT2LMHeadModel) -> None:
    """Greedy text of a model that always writes the first byte of a two-byte character."""
    (half,) = (id for id in range(1, 257) if bundled().token_bytes(id) == b"\xc3")
    hook = tiny.lm_head.register_forward_hook(
        lambda module, inputs, output: output.index_fill(-1, torch.tensor(half), 1e4)
    )
    _, text = generated(tiny, RunConfig(workload="generate", batch=1, temperature=0.0, max_new_tokens=3, prompt="x"))
    hook.remove()
    assert text == 3 * "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("cache", ["dynamic", "off", "static"])
def test_that_a_text_longer_than_the_context_goes_on_from_its_last_half(tiny: GPT2LMHeadModel, cache: str) -> None:
    config = RunConfig(
        workload="generate",
        batch=1,
        temperature=0.0,
        max_new_tokens=150,
        prompt=PROMPTS[0],
        levels=(("kv_cache", cache),),
    )
    context = bundled().encode(PROMPTS[0])
    made: list[int] = []
    while len(made) < 150:
        more = by_transformers(tiny, context, 65 - len(context))[len(context) :]
        made += more
        context = (context + more)[-32:]
    _, text = generated(tiny, config)
    assert text == bundled().decode(made[:150])


def test_that_a_prompt_longer_than_the_context_is_cut_to_its_last_half(tiny: GPT2LMHeadModel) -> None:
    prompt = "".join(f"x{n} = {n}\n" for n in range(40))
    ids = bundled().encode(prompt)
    assert len(ids) > 64
    config = RunConfig(workload="generate", batch=1, temperature=0.0, max_new_tokens=9, prompt=prompt)
    tokens, _ = generated(tiny, config)
    assert tokens == [by_transformers(tiny, ids[-32:], 9)]


def test_that_the_same_seed_gives_the_same_text_and_rows_part_ways(tiny: GPT2LMHeadModel) -> None:
    config = RunConfig(workload="generate", batch=3, temperature=1.0, max_new_tokens=16, prompt="x = ", seed=11)
    first, text = generated(tiny, config)
    again, text_again = generated(tiny, config)
    assert first == again
    assert text == text_again
    assert first[0] != first[1]


def test_that_only_tokens_that_the_tokenizer_knows_are_chosen() -> None:
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=3 * 8192))
    config = RunConfig(workload="generate", batch=4, temperature=1.5, top_k=0, max_new_tokens=16, prompt="x")
    tokens, _ = generated(model, config)
    assert all(token < bundled().vocabulary for row in tokens for token in row)
