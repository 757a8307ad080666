"""A model in training as a folder: loaded by transformers and by the engine, with the very same numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine import saving
from explorer.engine.device import environment
from explorer.engine.errors import BadRequest
from explorer.engine.session import Session
from explorer.engine.tokenizer import bundled

ODD = 8205
"""Tokens: no multiple of 128, so that a padded vocabulary has rows to leave out."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("odd")
    shape = GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=64, vocab_size=ODD, bos_token_id=0, eos_token_id=0)
    shape.save_pretrained(folder)
    text = folder / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(200)))
    return RunConfig(model=str(folder), device="cpu", text=str(text), batch=2, seq=16, lr=1e-2)


@contextmanager
def trained(config: RunConfig, steps: int = 3) -> Iterator[Session]:
    """A session of ``config`` after some steps, still under its toggles."""
    device = environment().device("cpu")
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        session.begin_segment(0)
        for _ in range(steps):
            session.loop.step()
        session.loop.collect(all_of_them=True)
        yield session


TOGGLES = [
    pytest.param((), id="none"),
    pytest.param((("vocab_padding", "128"), ("loss_impl", "chunked"), ("checkpointing", "all")), id="padded"),
    pytest.param((("precision", "bf16"), ("residual", "bf16"), ("attention", "sdpa"), ("gelu", "torch")), id="bf16"),
]


@pytest.mark.parametrize("levels", TOGGLES)
def test_that_transformers_and_the_engine_load_what_was_trained_under_toggles(
    start: RunConfig, levels: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    with trained(dataclasses.replace(start, levels=levels)) as session:
        session.run.model.compile(backend="eager")  # what torch.compile puts around a model is no part of it
        session.save_model(folder)
        del session.run.model.__dict__["_compiled_call_impl"]
        session._toggles.close()
        kept = {name: tensor.detach().clone() for name, tensor in session.run.model.state_dict().items()}
        tokens = torch.arange(16, 48).reshape(2, 16)
        with torch.no_grad():
            expected = session.run.model.eval()(tokens).logits
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    assert type(loaded) is GPT2LMHeadModel
    assert loaded.config.vocab_size == ODD
    with torch.no_grad():
        assert torch.equal(loaded.eval()(tokens).logits, expected)
    own = RunConfig(model=str(folder), weights="pretrained", device="cpu", text=start.text, batch=2, seq=16)
    with trained(own, steps=0) as again:
        assert all(torch.equal(tensor, kept[name]) for name, tensor in again.run.model.state_dict().items())


def test_that_the_tokenizer_beside_the_model_gives_the_same_ids(start: RunConfig, tmp_path: Path) -> None:
    with trained(start, steps=0) as session:
        session.save_model(tmp_path / "saved")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    text = "def f(x):\n    return 'déjà 字' <|endoftext|>"
    assert loaded(text, add_special_tokens=False)["input_ids"] == bundled().encode(text)
    assert loaded.eos_token_id == bundled().end_id
    assert loaded.decode(bundled().encode(text)) == text


def test_that_a_folder_with_something_in_it_stays_as_it_was(start: RunConfig, tmp_path: Path) -> None:
    kept = tmp_path / "saved" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("years of work")
    with trained(start, steps=0) as session, pytest.raises(BadRequest, match="not empty"):
        session.save_model(kept.parent)
    assert [path.name for path in tmp_path.rglob("*")] == ["saved", "thesis.txt"]
    with pytest.raises(BadRequest, match="generation changes no weights"):
        saving.check(RunConfig(workload="generate"), tmp_path / "new")
