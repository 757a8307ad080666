"""The diagnosis at the end of a run: on standard error, and in what --json prints."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from explorer import cli_diagnosis
from explorer.entry import main
from explorer.messages import Problem
from explorer.optimizations.cures import Cure
from explorer.results.diagnosis import Diagnosis, Finding


@pytest.fixture
def train(tiny_model: Path, tmp_path: Path) -> list[str]:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "2", "--seq", "16"]
    return ["run", "--in-process", "--no-store", *tiny]


def test_that_a_run_ends_with_its_diagnosis(train: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Weight decay makes each weight -9 times what it was: beyond float32 after some forty steps.
    explodes = ["--steps", "60", "--lr", "1", "--weight-decay", "10", "--grad-clip", "0"]
    assert main([*train, *explodes, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)["diagnosis"]
    assert found["findings"][0]["cause"] == "loss"
    assert "the loss is nan, after a gradient norm of" in found["findings"][0]["text"]
    norms = [norm for _, norm in found["gradient_norms"]]
    assert norms[-1] is None
    assert len(norms) >= 30
    assert "what filled the steps: none was profiled" in found["unknown"]
    assert main([*train, *explodes, "--memory-summary"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("GiB of this machine's memory" in line for line in lines), "asked for by --memory-summary"
    assert any(line.startswith("diagnosis: step ") and "the loss is nan" in line for line in lines)
    assert any(line.startswith("gradient norms until then: ") for line in lines)
    assert any(line.startswith("not known: ") for line in lines)


def test_that_findings_come_with_what_helps_and_norms_that_are_no_numbers_are_null() -> None:
    found = Diagnosis(
        findings=(Finding(cause="data", words="data-bound: as said"),),
        unknown=("this",),
        norms=((1, 2.0), (2, math.inf)),
    )
    cures = (Cure(toggle="data_loading", level="prefetch"), Cure(toggle="optimizer", level="fused"))
    assert cli_diagnosis.in_words(found, cures) == [
        "diagnosis: data-bound: as said. Prepare batches ahead, in pinned memory and in another thread or process.",
        "gradient norms until then: 2, inf",
        "not known: this",
        "try next, one at a time: --set data_loading=prefetch, --set optimizer=fused",
    ]
    told = cli_diagnosis.as_json(found, cures)
    assert told["gradient_norms"] == [[1, 2.0], [2, None]]
    assert told["try_next"][0] == {"toggle": "data_loading", "level": "prefetch"}


def test_that_a_profile_that_cannot_be_had_leaves_the_rest(
    train: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Problem(what="No such device", why="it went away")
    monkeypatch.setattr(cli_diagnosis, "profile_of", lambda config, download: problem)
    assert main([*train, "--steps", "3", "--diagnose"]) == 0
    errors = capsys.readouterr().err
    assert "no profile: No such device: it went away." in errors
    assert "not known: what filled the steps: none was profiled" in errors
