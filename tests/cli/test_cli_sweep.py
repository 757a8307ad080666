"""Sweep and attribution on the command line, with their worker on a thread."""

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
    return ["--in-process", *tiny, "--block-s", "0.01"]


def test_that_a_sweep_is_a_map_of_throughput_and_memory(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "map.csv"
    assert main(["sweep", *tiny, "--batches", "1,2", "--seqs", "8,16", "--csv", str(file)]) == 0
    table = pandas.read_csv(file)
    assert list(zip(table["seq"], table["batch"], strict=True)) == [(8, 1), (8, 2), (16, 1), (16, 2)]
    assert set(table["outcome"]) == {"measured"}
    assert table["tokens_per_s"].tolist() == pytest.approx(
        (table["seq"] * table["batch"] / table["step_ms_median"] * 1e3).tolist()
    )
    assert (table["n"] >= 10).all()
    assert (table["peak_allocated_bytes"] > 0).all()
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines()[:1]] == [["tokens/s", "seq", "8", "seq", "16"]]
    assert "the largest batch at 16 tokens: 2; a larger one was not tried" in printed


def test_that_points_that_the_budget_left_untimed_are_told(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *tiny, "--batches", "1", "--budget-s", "1e-9"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["batch", "1", "fits"]
    words = "not timed, only seen to fit: 1 of 1; 1e-09 s ended before their steps were steady: give --budget-s more"
    assert words in printed.err


def test_that_an_attribution_tells_settings_and_effects(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "effects.csv"
    toggles = ["--toggles", "attention=sdpa,gelu=torch", "--pairs", "2", "--no-parity", "--no-proof"]
    assert main(["attribute", *tiny, *toggles, "--csv", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 11
    rows = pandas.read_csv(file).set_index(["kind", "of"])["speedup"]
    both = rows["setting", "attention=sdpa gelu=torch"]
    sdpa, gelu = rows["setting", "attention=sdpa"], rows["setting", "gelu=torch"]
    assert rows["alone", "gelu=torch"] == pytest.approx(gelu)
    assert rows["beside all others", "gelu=torch"] == pytest.approx(both / sdpa)
    assert rows["main effect", "gelu=torch"] == pytest.approx((gelu * both / sdpa) ** 0.5)
    assert rows["interaction", "attention=sdpa x gelu=torch"] == pytest.approx(both / sdpa / gelu)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["sweep", "--batches", "1,2000"], "allowed: 1 to 1024"),
        (["sweep", "--batches", "1", "--seqs", "4"], "allowed: 8 to 1024"),
        (["sweep", "--batches", "1", "--workload", "generate"], "only train"),
        (["attribute", "--toggles", "gelu=torch"], "give 2 to 5"),
        (["attribute", "--toggles", "gelu=torch,attention=flash"], "attention=flash cannot run"),
    ],
)
def test_that_a_wrong_request_is_refused(
    tiny: list[str], capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main([wrong[0], *tiny, *wrong[1:]]) == 2
    assert words in capsys.readouterr().err


def test_that_batches_that_are_no_numbers_are_refused(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sweep", *tiny, "--batches", "1,many"])
    assert "give whole numbers such as 1,2,4,8" in capsys.readouterr().err
