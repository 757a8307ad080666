"""Generated text against transformers' own generate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine import generation
from explorer.engine.generation import CHUNK, GenerationLoop
from explorer.engine.no_waits import no_waits
from explorer.engine.telemetry import Telemetry
from explorer.engine.timing import DEPTH
from explorer.engine.tokenizer import bundled
from explorer.optimizations import registry
from explorer.optimizations.base import Run
from explorer.results.environment import DeviceInfo

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=2**33)
TOKENIZER = bundled()


@pytest.fixture
def tiny(tiny_model: Path) -> GPT2LMHeadModel:
    return GPT2LMHeadModel.from_pretrained(tiny_model, attn_implementation="eager")


def generated(
    model: GPT2LMHeadModel,
    config: RunConfig,
    restart_after: int | None = None,
    *,
    graphed: bool = False,
    device: str = "cpu",
) -> tuple[list[list[int]], str]:
    """All tokens in the context (a list a sequence) and the text; ``restart_after``: a new segment there."""
    run = Run(config=config, device=torch.device(device), model=model)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, TOKENIZER, model.config.n_positions, telemetry)
    with ExitStack() as stack:
        registry.enter(stack, run)
        run.graphed = run.graphed or graphed
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


def by_transformers(
    model: GPT2LMHeadModel, prompt: list[int], new_tokens: int, *, penalty: float | None = None
) -> list[int]:
    """What transformers' generate makes of ``prompt``, greedily, on its own default path in float32."""
    made = model.eval().generate(
        torch.tensor([prompt], device=model.device),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=model.device),
        max_new_tokens=new_tokens,
        do_sample=False,
        repetition_penalty=penalty,
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
    *(
        pytest.param({"kv_cache": cache, "attention": attention}, id=f"{cache}-{attention}")
        for cache in ("dynamic", "off", "static")
        for attention in ("naive", "sdpa")
    ),
    pytest.param({"decoder": "torch", "kv_cache": "static", "attention": "sdpa", "gelu": "torch"}, id="plain torch"),
]


@pytest.fixture(scope="module")
def by_prompt(tiny_model: Path) -> dict[str, list[int]]:
    """What transformers' generate makes of each prompt."""
    model = GPT2LMHeadModel.from_pretrained(tiny_model, attn_implementation="eager")
    return {prompt: by_transformers(model, TOKENIZER.encode(prompt), 24) for prompt in PROMPTS}


@pytest.mark.parametrize("levels", CACHES)
def test_that_greedy_tokens_are_those_of_transformers_generate(
    tiny: GPT2LMHeadModel, by_prompt: dict[str, list[int]], levels: dict[str, str]
) -> None:
    for prompt, expected in by_prompt.items():
        config = RunConfig(
            workload="generate",
            batch=1,
            temperature=0.0,
            max_new_tokens=24,
            prompt=prompt,
            levels=tuple(levels.items()),
        )
        tokens, text = generated(tiny, config)
        assert tokens == [expected]
        assert text == TOKENIZER.decode(expected[len(TOKENIZER.encode(prompt)) :])


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
    expected = by_transformers(tiny, TOKENIZER.encode(PROMPTS[0]), 20)
    assert generated(tiny, config, restart_after=7)[0] == [expected, expected]


@pytest.mark.parametrize("levels", CACHES)
def test_that_penalised_tokens_are_those_of_transformers_generate(
    tiny: GPT2LMHeadModel, levels: dict[str, str]
) -> None:
    for penalty in (0.8, 1.4):
        config = RunConfig(
            workload="generate", batch=2, temperature=0.0, max_new_tokens=24, prompt=PROMPTS[0],
            repetition_penalty=penalty, levels=tuple(levels.items()),
        )  # fmt: skip
        ids = TOKENIZER.encode(PROMPTS[0])
        expected = by_transformers(tiny, ids, 24, penalty=penalty)
        assert expected != by_transformers(tiny, ids, 24)
        assert generated(tiny, config, restart_after=7)[0] == [expected, expected]


UNEQUAL = ("class A:\n    def f(self):\n        return", "x", "import os")


@pytest.mark.parametrize("levels", CACHES)
@pytest.mark.parametrize("restart_after", [None, 7])
def test_that_prompts_of_unequal_length_go_on_in_one_batch_as_each_does_alone(
    tiny: GPT2LMHeadModel, levels: dict[str, str], restart_after: int | None
) -> None:
    config = RunConfig(
        workload="generate", batch=4, temperature=0.0, max_new_tokens=20, prompt=UNEQUAL[0], more_prompts=UNEQUAL[1:],
        levels=tuple(levels.items()),
    )  # fmt: skip
    alone = [by_transformers(tiny, ids, 20)[len(ids) :] for ids in map(TOKENIZER.encode, (*UNEQUAL, UNEQUAL[0]))]
    tokens, _ = generated(tiny, config, restart_after)
    since = restart_after or 0  # a segment begins with a prefill of all tokens so far
    assert [row[since - 20 :] for row in tokens] == [row[since:] for row in alone]


def test_that_each_prompts_text_is_read_and_ends_at_its_own_stop_string(tiny: GPT2LMHeadModel) -> None:
    config = RunConfig(
        workload="generate", batch=4, temperature=1.0, max_new_tokens=40, prompt=UNEQUAL[0], more_prompts=UNEQUAL[1:]
    )

    def texts(stop: tuple[str, ...]) -> tuple[list[str], int]:
        run = Run(config=dataclasses.replace(config, stop=stop), device=torch.device("cpu"), model=tiny)
        telemetry = Telemetry(CPU)
        loop = GenerationLoop(run, TOKENIZER, 64, telemetry)
        loop.begin_segment(0)
        while not loop.finished:
            loop.step()
            loop.collect()
        loop.collect(all_of_them=True)
        telemetry.close()
        rows = [row[-loop.next_step :] for row in loop.tokens.tolist()]
        read = [loop.end_text(row) for row in range(loop.texts)]
        if not stop:
            assert read == [TOKENIZER.decode(row) for row in rows[:3]]
        return read, loop.next_step

    whole, computed = texts(())
    assert len(set(whole)) == 3
    assert computed == 40
    # One that ends no text but the second's: the others go on to their ends.
    stop = next(
        whole[1][at : at + 3] for at in range(5, 60) if all(whole[1][at : at + 3] not in whole[i] for i in (0, 2))
    )
    assert texts((stop,)) == ([whole[0], whole[1][: whole[1].index(stop)], whole[2]], 40)
    stops = tuple(text[8:11] for text in whole)
    ended, computed = texts(stops)
    assert ended == [text[: min(text.index(stop) for stop in stops if stop in text)] for text in whole]
    assert computed < 40


ATEN = torch.ops.aten
READING = (ATEN._local_scalar_dense, ATEN.item, ATEN.is_nonzero, ATEN.nonzero, ATEN.masked_select)
"""What needs a tensor's numbers on the host, and so waits for a GPU; in inference mode item and bool as a whole."""


class Reads(TorchDispatchMode):
    """Keeps which of these were called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in READING:
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("levels", CACHES)
@pytest.mark.parametrize("more_prompts", [(), UNEQUAL[1:]])
def test_that_no_token_is_read_from_the_device_to_choose_the_next(
    tiny: GPT2LMHeadModel, levels: dict[str, str], more_prompts: tuple[str, ...]
) -> None:
    config = RunConfig(
        workload="generate", batch=3, temperature=0.9, top_k=9, top_p=0.9, repetition_penalty=1.3, max_new_tokens=12,
        prompt=UNEQUAL[0], more_prompts=more_prompts, levels=tuple(levels.items()),
    )  # fmt: skip
    run = Run(config=config, device=torch.device("cpu"), model=tiny)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, TOKENIZER, 64, telemetry)
    with ExitStack() as stack:
        stack.enter_context(no_waits())
        registry.enter(stack, run)
        loop.begin_segment(0)
        loop.step()
        reads = stack.enter_context(Reads())
        while not loop.finished:
            loop.step()
        assert reads.seen == []
        loop.collect(all_of_them=True)
    telemetry.close()


STOPPING = RunConfig(workload="generate", batch=1, temperature=1.0, prompt="x = ", seed=3, max_new_tokens=60)


def stopped(model: GPT2LMHeadModel, config: RunConfig, *, graphed: bool = False) -> tuple[str, int]:
    """The text of ``config``, and how many tokens were computed."""
    run = Run(config=config, device=torch.device("cpu"), model=model)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, TOKENIZER, model.config.n_positions, telemetry)
    text = ""
    with ExitStack() as stack:
        registry.enter(stack, run)
        run.graphed = graphed
        loop.begin_segment(0)
        while not loop.finished:
            loop.step()
            loop.collect()
            text += loop.take_text()
        loop.collect(all_of_them=True)
    telemetry.close()
    return text + loop.end_text(), loop.next_step


def test_that_a_text_ends_before_a_stop_string_that_spans_tokens(tiny: GPT2LMHeadModel) -> None:
    tokens, whole = generated(tiny, STOPPING)
    pieces = [TOKENIZER.decode([token]) for token in tokens[0][-60:]]
    at = 30
    stop = pieces[at][-1] + pieces[at + 1] + pieces[at + 2][:1]
    assert "\N{REPLACEMENT CHARACTER}" not in stop
    assert len(stop) > 2
    text, computed = stopped(tiny, dataclasses.replace(STOPPING, stop=("no such text", stop)))
    assert text == whole[: whole.index(stop)] != ""
    assert computed <= at + 3 + DEPTH
    assert stopped(tiny, dataclasses.replace(STOPPING, stop=("no such text",))) == (whole, 60)


def test_that_a_text_that_begins_again_can_come_to_its_stop_string_again(tiny: GPT2LMHeadModel) -> None:
    whole, _ = stopped(tiny, STOPPING)
    at = next(at for at in range(20, len(whole)) if whole.index(whole[at : at + 3]) == at)
    config = dataclasses.replace(STOPPING, stop=(whole[at : at + 3],))
    run = Run(config=config, device=torch.device("cpu"), model=tiny)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, TOKENIZER, 64, telemetry)
    loop.begin_segment(0)
    texts = []
    for _ in range(2):
        loop.begin_text()
        while not loop.finished:
            loop.step()
            loop.collect()
        loop.collect(all_of_them=True)
        texts.append(loop.end_text())
    telemetry.close()
    assert texts == [whole[:at]] * 2


def test_that_a_text_that_ends_within_a_character_says_so(tiny: GPT2LMHeadModel) -> None:
    """Greedy text of a model that always writes the first byte of a two-byte character."""
    (half,) = (id for id in range(1, 257) if TOKENIZER.token_bytes(id) == b"\xc3")
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
    context = TOKENIZER.encode(PROMPTS[0])
    made: list[int] = []
    while len(made) < 150:
        more = by_transformers(tiny, context, 65 - len(context))[len(context) :]
        made += more
        context = (context + more)[-32:]
    _, text = generated(tiny, config)
    assert text == TOKENIZER.decode(made[:150])


def test_that_a_prompt_longer_than_the_context_is_cut_to_its_last_half(tiny: GPT2LMHeadModel) -> None:
    prompt = "".join(f"x{n} = {n}\n" for n in range(40))
    ids = TOKENIZER.encode(prompt)
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
    assert all(token < TOKENIZER.vocabulary for row in tokens for token in row)


class Recorded:
    """Stands in for a CUDA graph on the CPU: work that is run some times when it is recorded, and once a replay."""

    made = 0

    def __init__(self, work: Callable[[], None], *, prepare: Callable[[], None], **_: object) -> None:
        Recorded.made += 1
        for _ in range(3):
            prepare()
            work()
        prepare()
        self.replay = work


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "StepGraph", Recorded)
    monkeypatch.setattr(generation, "new_pool", lambda: object())
    monkeypatch.setattr(Recorded, "made", 0)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("decoder", ["hf", "torch"])
@pytest.mark.parametrize("new_tokens", [1, 2, 9, 24, 150])
@pytest.mark.parametrize("more_prompts", [(), ("x",)])
def test_that_recording_and_replaying_tokens_by_eights_changes_no_token(
    tiny: GPT2LMHeadModel, decoder: str, new_tokens: int, more_prompts: tuple[str, ...]
) -> None:
    levels = {"kv_cache": "static", "attention": "sdpa", "decoder": decoder}
    config = RunConfig(
        workload="generate", batch=2, temperature=1.0, max_new_tokens=new_tokens, prompt=PROMPTS[0], seed=3,
        more_prompts=more_prompts, levels=tuple(levels.items()),
    )  # fmt: skip
    assert generated(tiny, config, graphed=True) == generated(tiny, config)
    # A prefill, a token; past the context the prefill of its last half.
    assert Recorded.made == (1 if new_tokens == 1 else 2 if new_tokens < 50 else 3)


@pytest.mark.usefixtures("recorded")
def test_that_a_stop_string_ends_a_recorded_text_within_one_more_batch_of_tokens(tiny: GPT2LMHeadModel) -> None:
    config = dataclasses.replace(STOPPING, levels=(("kv_cache", "static"),))
    tokens, whole = generated(tiny, config)
    at = 19
    stop = TOKENIZER.decode(tokens[0][-60:][at : at + 1])
    before, _ = whole.split(stop, 1)
    place = len(TOKENIZER.encode(before))
    text, computed = stopped(tiny, dataclasses.replace(config, stop=(stop,)), graphed=True)
    assert text == before
    # Its own batch of eight, after the prefill's single one, and the one that was submitted before that was read.
    assert computed <= 1 + CHUNK * (place // CHUNK + 2) < 60


@pytest.mark.usefixtures("recorded")
def test_that_a_text_can_begin_again_and_comes_out_the_same(tiny: GPT2LMHeadModel) -> None:
    levels = (("kv_cache", "static"),)
    config = RunConfig(workload="generate", batch=1, max_new_tokens=20, prompt="x = ", seed=3, levels=levels)
    run = Run(config=config, device=torch.device("cpu"), model=tiny)
    telemetry = Telemetry(CPU)
    loop = GenerationLoop(run, TOKENIZER, 64, telemetry)
    with ExitStack() as stack:
        registry.enter(stack, run)
        run.graphed = True
        loop.begin_segment(0)
        texts = []
        for _ in range(3):
            loop.begin_text()
            while not loop.finished:
                loop.step()
            samples = loop.collect(all_of_them=True)
            texts.append(loop.end_text())
            assert [sample.step for sample in samples] == list(range(20))
            assert [sample.phase for sample in samples].count("prefill") == 1
    telemetry.close()
    assert texts[0] == texts[1] == texts[2] != ""
    assert Recorded.made == 2


GRAPHS = [
    pytest.param(
        {"decoder": decoder, "kv_cache": "static", "attention": attention, "gelu": "torch"}, id=f"{decoder}-{attention}"
    )
    for decoder, attention in (
        ("hf", "naive"),
        ("hf", "sdpa"),
        ("torch", "sdpa"),
        ("torch", "math"),
        ("triton", "sdpa"),
    )
]


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["off", "on"])
@pytest.mark.parametrize("levels", GRAPHS)
def test_that_greedy_tokens_on_the_gpu_are_those_of_transformers_generate(
    tiny: GPT2LMHeadModel, levels: dict[str, str], graph: str
) -> None:
    tiny.to("cuda")
    for prompt in PROMPTS:
        ids = TOKENIZER.encode(prompt)
        expected = by_transformers(tiny, ids, 24)
        config = RunConfig(
            workload="generate", device="cuda:0", batch=2, temperature=0.0, max_new_tokens=24, prompt=prompt,
            levels=tuple({**levels, "decode_graph": graph}.items()),
        )  # fmt: skip
        assert generated(tiny, config, device="cuda")[0] == [expected, expected]


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["off", "on"])
@pytest.mark.parametrize("levels", GRAPHS)
def test_that_prompts_of_unequal_length_go_on_on_the_gpu_as_each_does_alone(
    tiny: GPT2LMHeadModel, levels: dict[str, str], graph: str
) -> None:
    tiny.to("cuda")
    alone = [by_transformers(tiny, ids, 24)[len(ids) :] for ids in map(TOKENIZER.encode, UNEQUAL)]
    config = RunConfig(
        workload="generate", device="cuda:0", batch=3, temperature=0.0, max_new_tokens=24, prompt=UNEQUAL[0],
        more_prompts=UNEQUAL[1:], levels=tuple({**levels, "decode_graph": graph}.items()),
    )  # fmt: skip
    tokens, _ = generated(tiny, config, device="cuda")
    assert [row[-24:] for row in tokens] == alone


@pytest.mark.gpu
@pytest.mark.parametrize("levels", GRAPHS)
def test_that_a_graph_draws_the_numbers_that_single_launches_draw(
    tiny: GPT2LMHeadModel, levels: dict[str, str]
) -> None:
    tiny.to("cuda")
    made = [
        generated(
            tiny,
            RunConfig(
                workload="generate", device="cuda:0", batch=3, temperature=1.0, max_new_tokens=150, prompt="x = ",
                levels=tuple({**levels, "decode_graph": graph}.items()),
            ),
            device="cuda",
        )
        for graph in ("off", "on")
    ]  # fmt: skip
    assert made[0] == made[1]
    assert made[0][0][0] != made[0][0][1]
