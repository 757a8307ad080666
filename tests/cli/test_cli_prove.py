"""The prove command, with its process, and what that process does when it cannot."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from explorer.config import RunConfig
from explorer.engine.proving import profile_of
from explorer.entry import main
from explorer.messages import Problem
from explorer.optimizations.registry import OPTIMIZATIONS


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    return file


@pytest.fixture
def asked(tiny_model: Path, text_file: Path) -> list[str]:
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text_file), "--batch", "2", "--seq", "16"]
    return ["prove", *tiny]


def test_that_a_proven_configuration_exits_with_0_and_leaves_no_process(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "precision=bf16", "--set", "checkpointing=alternate", "--json"]
    assert main([*asked, *settings]) == 0
    assert not multiprocessing.active_children()
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # NaN is no JSON
    first = {o.name: o.levels[0].id for o in OPTIMIZATIONS if "train" in o.workloads}
    set_here = {"precision": "bf16", "checkpointing": "alternate"}
    assert {name: proof["level"] for name, proof in result["proofs"].items()} == first | set_here
    assert all(proof["shown"] for proof in result["proofs"].values())
    assert result["profile"]["recomputed_blocks"] == [0]
    assert result["profile"]["busy_share"] is None


def test_that_a_toggle_without_proof_is_flagged_and_exits_with_1(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # On the CPU torch's fused attention cannot drop: with GPT-2's dropout SDPA takes its unfused path.
    assert main([*asked, "--set", "attention=sdpa", "--set", "gelu=torch"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["attention", "sdpa", "NO"] in [line[:3] for line in lines]
    assert ["gelu", "torch", "yes"] in [line[:3] for line in lines]
    listed = lines[lines.index(["ms", "count", "operator"]) + 1 :]
    assert len(listed) == 10
    times = [float(ms) for ms, _, _ in listed]
    assert times == sorted(times, reverse=True)


def test_that_what_cannot_run_here_is_a_wrong_request(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--set", "attention=flash", "--set", "precision=bf16"]) == 2
    printed = capsys.readouterr()
    assert "the flash kernel needs a CUDA device" in printed.err
    assert printed.out == ""


def test_that_the_death_of_the_process_is_told(tiny_model: Path) -> None:
    def end(activity: str) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    found = profile_of(RunConfig(model=str(tiny_model), device="cpu"), report=end)
    assert isinstance(found, Problem)
    assert "died" in found.what
    assert "-9" in found.why
    assert not multiprocessing.active_children()
