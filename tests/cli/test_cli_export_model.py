"""``export-model`` from its options to the file, by the worker that does it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel

from explorer.engine import saving
from explorer.engine.tokenizer import bundled
from explorer.entry import main


@pytest.fixture(scope="module")
def saved(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``run --save`` writes it: the model and its tokenizer."""
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    saving.save(GPT2LMHeadModel.from_pretrained(tiny_model), bundled(), folder)
    return folder


def test_that_a_saved_model_is_exported_and_told_of(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "tiny.pt2"
    assert main(["export-model", "--model", str(saved), "--out", str(target), "--in-process"]) == 0
    assert f"{target}: {target.stat().st_size / 2**20:.1f} MiB; its logits are within" in capsys.readouterr().out
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        expected = GPT2LMHeadModel.from_pretrained(saved).eval()(tokens).logits
    torch.testing.assert_close(torch.export.load(target).module()(tokens), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("out", "model", "words"),
    [("x.bin", None, ".pt2"), ("gone/x.pt2", None, "make it first"), ("x.pt2", "/no/such/model", "no folder of this")],
)
def test_that_what_cannot_be_exported_is_refused(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, model: str | None, words: str
) -> None:
    asked = ["--model", model or str(saved), "--out", str(tmp_path / out), "--in-process"]
    assert main(["export-model", *asked]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
