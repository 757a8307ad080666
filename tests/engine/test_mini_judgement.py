"""The judgement of the bundled model: each figure against one found another way."""

import itertools
import math
import shutil
import subprocess

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.engine import mini_judgement as judgement

CPU = torch.device("cpu")


@pytest.fixture
def gpt2():
    """Two layers, 16 positions, 50 tokens, large random weights: it has strong opinions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(
            GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=50, bos_token_id=0, eos_token_id=None)
        )
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=1.0)
    return model.eval()


@pytest.mark.parametrize("length", [1, 2, 16, 17, 24, 25, 100])
def test_that_bits_per_byte_counts_every_token_once(gpt2, length):
    # Without positions and blocks the model is a table of pairs: its text's bits can be added up from that.
    for name, parameter in gpt2.named_parameters():
        if "wte" not in name and "ln_f" not in name:
            parameter.data.zero_()
    tokens = np.random.default_rng(0).integers(0, 50, length).astype(np.uint16)
    with torch.no_grad():
        table = gpt2.lm_head(gpt2.transformer.ln_f(gpt2.transformer.wte.weight)).double().log_softmax(-1)
    nats = math.log(50) - sum(float(table[a, b]) for a, b in itertools.pairwise(tokens))
    found = judgement.bits_per_byte(gpt2, tokens, 7, CPU)
    assert found == pytest.approx(nats / math.log(2) / 7, rel=1e-6)  # float32 logits; seen: 3e-8


def test_that_bits_per_byte_uses_what_came_before(gpt2):
    tokens = np.random.default_rng(0).integers(0, 50, 12).astype(np.uint16)
    gpt2.loss_type = "ForCausalLM"
    loss = gpt2(
        input_ids=torch.from_numpy(tokens.astype(np.int64))[None], labels=torch.tensor(tokens[None].astype(int))
    ).loss
    expected = (loss.item() * 11 + math.log(50)) / math.log(2) / 12
    assert judgement.bits_per_byte(gpt2, tokens, 12, CPU) == pytest.approx(expected, rel=1e-5)


@pytest.mark.skipif(shutil.which("xz") is None, reason="the xz command is the reference")
def test_that_xz_needs_what_the_command_says():
    content = b"".join(f"def f{n}(x):\n    return x + {n}\n".encode() for n in range(2000))
    compressed = subprocess.run(["xz", "-9", "-c"], input=content, capture_output=True, check=True).stdout
    assert judgement.xz_bits_per_byte(content) == pytest.approx(8 * len(compressed) / len(content), rel=0.01)


def test_that_a_batch_of_unequal_prompts_gives_what_each_gives_alone(gpt2):
    prompts = [[3], [7, 8, 9, 10, 11], [1, 2, 3]]
    together = judgement.sample(gpt2, prompts, new_tokens=8, temperature=0, end_id=19, seed=0, device=CPU)
    for prompt, tokens in zip(prompts, together, strict=True):
        # transformers' own greedy generation, with its cache.
        expected = gpt2.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            max_new_tokens=8,
            do_sample=False,
            suppress_tokens=[19],
            pad_token_id=0,
        )
        assert tokens == expected[0, len(prompt) :].tolist()
    assert len({token for tokens in together for token in tokens}) > 5  # no model that always says the same


SOURCE = '''\
import os

LIMIT = 3


@decorated
def first(a, b):
    """Adds.

    At length.
    """
    c = a + b
    d = c * 2
    e = d + 1
    return e


def short(x):
    return x


class Second:
    x = 1
    y = 2
    z = 3
    w = 4
    v = 5
    u = 6
    t = 7
    s = 8
'''


def test_that_prompts_are_beginnings_of_functions_and_classes_of_many_files():
    other = "def third(q):\n    a = q\n    b = q\n    c = q\n    d = q\n    e = q\n    f = q\n    return a\n"
    found = judgement.prompts([SOURCE, "not python (", other], 10)
    assert found == [
        '@decorated\ndef first(a, b):\n    """Adds.\n\n    At length.\n    """',
        "def third(q):\n    a = q\n    b = q\n    c = q",
        "class Second:\n    x = 1\n    y = 2\n    z = 3",
    ]
    assert judgement.prompts([SOURCE, other], 2) == found[:2]


PROMPT = "def f(a):\n    b = a"


@pytest.mark.parametrize(
    ("continuation", "good"),
    [
        ("    return b\n", True),
        ("    return b\n\n\ndef g(x):\n    retur", True),  # the last line is unfinished
        ("    c = (b,\n         a,\n", False),  # nothing in the continuation is complete
        ("    d = 1\n    c = (b,\n         a,\n", True),
        ("    d = 1\n    '''open\nfor ever\n", True),
        ("    '''open\n    d = 1\n    e = 2\n", False),  # a string that swallows everything
        ("    if b:\n", False),
        ("    e = 0\n    if b:\n", True),
        ("    return b)\n    c = 1\n", False),
        ("    c = 'open\n    d = 1\n", False),
        ("    d = 1\n   c = 2\n", False),
        ("    d = 1\n    return return\n    e = 2\n", False),
        ("    d = '\\d'\n", True),  # Python warns, and this is not our text to be warned of
        ("    \0\n    d = 1\n", False),
        ("    # a comment\n\n", True),
        ("", False),
        ("    return", False),
    ],
)
def test_that_a_sample_parses_up_to_its_last_complete_statement(continuation, good):
    assert judgement.parses(PROMPT, "\n" + continuation) is good
    assert judgement.parses(PROMPT + "\n", continuation) is good


@pytest.mark.parametrize(
    ("continuation", "good"), [(" + 1\n    ret", False), (" + 1\n    return b\n", True), ("\n", False)]
)
def test_that_the_prompts_own_last_line_is_no_statement_of_the_sample(continuation, good):
    assert judgement.parses(PROMPT, continuation) is good


@given(st.data())
def test_that_copies_are_found_wherever_they_are(data):
    corpus = np.array(data.draw(st.lists(st.integers(0, 2), max_size=300)), dtype=np.uint16)
    samples = data.draw(st.lists(st.lists(st.integers(0, 2), max_size=80), max_size=3))
    if len(corpus) >= 60:
        start = data.draw(st.integers(0, len(corpus) - 60))
        length = data.draw(st.sampled_from([49, 50, 51]))
        samples.append([3, *corpus[start : start + length].tolist(), 3])
    text = bytes(corpus.astype(np.uint8))
    expected = [any(bytes(tokens[n : n + 50]) in text for n in range(len(tokens) - 49)) for tokens in samples]
    assert judgement.copied(samples, corpus) == expected


def test_that_copies_are_found_across_the_parts_that_are_scanned(monkeypatch):
    monkeypatch.setattr(judgement, "_SCANNED_TOKENS", 64)
    corpus = np.random.default_rng(0).integers(0, 8192, 1000).astype(np.uint16)
    samples = [[9000, *corpus[n : n + 50].tolist(), 9000] for n in range(951)]
    assert all(judgement.copied(samples, corpus))
    assert not any(judgement.copied([[*sample[:-2], 9000] for sample in samples], corpus))
