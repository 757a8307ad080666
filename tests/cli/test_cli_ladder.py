"""The ladder command, with its worker on a thread."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from explorer.entry import main

pytestmark = pytest.mark.usefixtures("short_warm_up")


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> list[str]:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "1", "--seq", "8"]
    return ["ladder", "--in-process", *tiny, "--block-s", "0.01", "--pairs", "2", "--no-parity", "--no-proof"]


def test_that_a_ladder_is_a_table_that_the_same_command_goes_on_with(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "l.csv"
    assert main([*tiny, "--rungs", "attention=sdpa", "--csv", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    first = json.loads(printed.out)
    assert "profile first, then change one thing at a time: python main.py profile --model" in printed.err
    assert main([*tiny, "--rungs", "attention=sdpa", "gelu=torch", "--csv", str(file)]) == 0
    table = pandas.read_csv(file)
    assert table["setting"].tolist() == ["baseline", "attention=sdpa", "gelu=torch"]
    assert table["attention"].tolist() == ["naive", "sdpa", "sdpa"]
    assert table["speedup"][1] == first[1]["speedup"]  # kept, not measured again
    product = table["speedup"][1] * table["speedup"][2]
    assert table["speedup_vs_baseline"][2] == pytest.approx(product, rel=1e-12)
    assert (table["tokens_per_s"] * table["step_ms_median"]).tolist() == pytest.approx([8000.0] * 3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["setting", "baseline", "+", "+"]
    assert f"{table['speedup'][2]:.3f}x" in lines[3]
    assert "floor 0.50%, assumed" in lines[4]


def test_that_a_ladder_kept_before_energy_was_goes_on_and_says_its_utilization(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, state = tmp_path / "l.csv", tmp_path / "l.csv.state.json"
    assert main([*tiny, "--rungs", "attention=sdpa", "--csv", str(file)]) == 0
    kept = json.loads(state.read_text())
    for comparison in kept["results"]["comparisons"].values():
        del comparison["joules_per_token"]
    state.write_text(json.dumps(kept))
    before = state.read_bytes()
    capsys.readouterr()
    assert main([*tiny, "--rungs", "attention=sdpa", "--csv", str(file), "--no-timing", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert state.read_bytes() == before
    # Two layers of width 32, 8,192 tokens of vocabulary: 6 N + 12 L d T with T = 8.
    flop = 6 * (8192 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32) + 12 * 2 * 32 * 8
    assert rows[1]["tflop_per_s"] == pytest.approx(flop * rows[1]["tokens_per_s"] / 1e12, rel=1e-9)
    assert (rows[1]["mfu_measured"], rows[1]["joules_per_token"]) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["gelu=fast"], "allowed: hf, torch, triton"),
        (["gelu"], "TOGGLE=LEVEL"),
        (["batch=4"], "no toggle is called 'batch'"),
        (["gelu=triton"], "rung gelu=triton: gelu=triton cannot run"),
        (["gelu=hf"], "changes nothing"),
    ],
)
def test_that_a_wrong_rung_is_refused(
    tiny: list[str], capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main([*tiny, "--rungs", *wrong]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err
