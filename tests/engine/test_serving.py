"""A model as a file for serving: what it computes is what the model computes, at sizes that it was not traced with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.engine import serving
from explorer.engine.errors import BadRequest, Cancelled

VOCABULARY, POSITIONS = 257, 24
SIZES = ((1, 1), (1, 7), (5, POSITIONS))
HERE = all(importlib.util.find_spec(name) for name in serving.NEEDED)


def tiny() -> GPT2LMHeadModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        shape = GPT2Config(
            n_layer=1,
            n_head=2,
            n_embd=16,
            n_positions=POSITIONS,
            vocab_size=VOCABULARY,
            bos_token_id=0,
            eos_token_id=0,
            initializer_range=0.5,
        )
        return GPT2LMHeadModel(shape).train()


def tokens(size: tuple[int, int]) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, size, generator=torch.Generator().manual_seed(9))


def expected(size: tuple[int, int]) -> torch.Tensor:
    """By transformers in float64, its attention written out."""
    model = tiny().double().eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(input_ids=tokens(size)).logits


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[float, int], list[str]]:
    """The file, what was told of it, and what was told on the way."""
    target = tmp_path_factory.mktemp("served") / "tiny.pt2"
    said: list[str] = []
    told = serving.export(tiny(), target, report=lambda words, *_: said.append(words), cancelled=lambda: False)
    return target, told, said


def test_that_the_file_computes_what_the_model_does_at_other_sizes(
    exported: tuple[Path, tuple[float, int], list[str]],
) -> None:
    target, (error, size_bytes), said = exported
    assert target.stat().st_size == size_bytes
    assert [path.name for path in target.parent.iterdir()] == [target.name], "nothing is left beside it"
    assert said == ["tracing the model", "checking the file against the model", "writing the file"]
    served = torch.export.load(target).module()
    for size in SIZES:
        logits, exact = served(tokens(size)), expected(size)
        assert logits.shape == (*size, VOCABULARY)
        # float32 at these sizes is off by 1e-6 of the largest logit.
        torch.testing.assert_close(logits.double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max()))
    assert error < 1e-5
    with pytest.raises(Exception, match=r"sequence|shape|<="):
        served(tokens((1, POSITIONS + 1)))


@pytest.mark.skipif(not HERE, reason="the extra onnx is not installed")
def test_that_an_onnx_file_computes_what_the_model_does_at_other_sizes(tmp_path: Path) -> None:
    import onnxruntime

    target = tmp_path / "tiny.onnx"
    serving.export(tiny(), target, report=lambda *_: None, cancelled=lambda: False)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    for size in SIZES:
        (logits,) = session.run(["logits"], {"input_ids": tokens(size).numpy()})
        exact = expected(size)
        torch.testing.assert_close(
            torch.from_numpy(logits).double(), exact, rtol=0, atol=4e-6 * float(exact.abs().max())
        )


def test_that_a_file_which_computes_something_else_is_not_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tiny()
    write = serving._torch

    def spoilt(traced: torch.export.ExportedProgram) -> bytes:
        name = "model.transformer.h.0.mlp.c_fc.bias"
        traced.state_dict[name] = nn.Parameter(traced.state_dict[name] + 1e-3)
        return write(traced)

    monkeypatch.setattr(serving, "_torch", spoilt)
    with pytest.raises(RuntimeError, match=r"off by .* where rounding explains"):
        serving.export(model, tmp_path / "x.pt2", report=lambda *_: None, cancelled=lambda: False)
    assert not list(tmp_path.iterdir())


def test_that_a_stop_before_the_trace_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        serving.export(tiny(), tmp_path / "x.pt2", report=lambda *_: None, cancelled=lambda: True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [("x.pt", "neither|Let its name end"), ("gone/x.pt2", "gone is not there"), (".pt2", "Let its name end")],
)
def test_that_a_wrong_target_is_refused_with_what_is_allowed(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=words):
        serving.check(tmp_path / name)


def test_that_onnx_without_its_packages_names_the_line_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serving, "NEEDED", ("onnx_of_nowhere", "onnxscript_of_nowhere"))
    with pytest.raises(BadRequest, match="pip install onnx_of_nowhere onnxscript_of_nowhere"):
        serving.check(tmp_path / "x.onnx")


def test_that_a_model_too_large_for_one_onnx_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serving, "NEEDED", ())
    monkeypatch.setattr(serving, "ONNX_MOST_BYTES", 1000)
    with pytest.raises(BadRequest, match="one ONNX file holds 2"):
        serving.export(tiny(), tmp_path / "x.onnx", report=lambda *_: None, cancelled=lambda: False)
