"""``python main.py generate-bench`` on the CPU with a small model."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from explorer.entry import main
from explorer.results.token_account import PARTS

OURS = ["kv_cache=static", "kv_cache=static,decoder=torch,attention=sdpa", "kv_cache=static,decode_graph=on"]


def test_that_each_arm_writes_the_text_of_transformers_and_has_its_row(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.csv"
    asked = ["--model", str(tiny_model), "--device", "cpu", "--weight-dtype", "fp32", "--csv", str(file)]
    asked += ["--prompt-tokens", "12", "--tokens", "9", "--rounds", "2", "--batch", "1", "--batch", "3"]
    for settings in OURS:
        asked += ["--set", settings]
    assert main(["generate-bench", *asked]) == 0
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert [(row["batch"], row["arm"]) for row in rows] == [
        (batch, arm) for batch in ("1", "3") for arm in ("generate, fp32", *OURS[:2])
    ]
    for row in rows:
        assert row["first_difference"] == ""  # greedy and in float32, as transformers' own
        wall_s = float(row["wall_ms_median"]) / 1e3
        assert float(row["tokens_per_s"]) == pytest.approx(int(row["batch"]) * 9 / wall_s)
        assert 0 < float(row["first_token_ms"]) <= float(row["wall_ms_max"])
    printed = capsys.readouterr().out
    assert printed.count("CUDA graphs need a CUDA device") == 2
    assert printed.count("transformers compiles on a GPU only") == 2


def test_that_a_text_that_parts_from_transformers_says_where(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", str(tiny_model), "--device", "cpu", "--weight-dtype", "fp32", "--temperature", "50"]
    asked += ["--only", "fp32", "--only", "nothing"]
    assert (
        main(
            [
                "generate-bench",
                *asked,
                "--prompt-tokens",
                "5",
                "--tokens",
                "9",
                "--rounds",
                "1",
                "--batch",
                "1",
                "--set",
                "",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("token 0")
    assert "compiled" not in printed


def test_that_where_no_arm_can_run_the_status_says_so(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.csv"
    asked = ["--model", str(tiny_model), "--device", "cpu", "--without-transformers", "--set", OURS[2], "--batch", "1"]
    assert main(["generate-bench", *asked, "--csv", str(file)]) == 1
    assert "CUDA graphs need a CUDA device" in capsys.readouterr().out
    assert not file.exists()


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize(("dtype", "rows"), [("bf16", "1"), ("int8", "1"), ("bf16", "3")])
def test_that_a_token_of_our_kernels_is_accounted_for_by_part(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, rows: str
) -> None:
    file = tmp_path / "bench.csv"
    settings = f"kv_cache=static,attention=sdpa,gelu=torch,decoder=triton,decode_graph=on,weight_dtype={dtype}"
    asked = ["--model", str(tiny_model), "--without-transformers", "--set", settings, "--batch", rows]
    assert (
        main(["generate-bench", *asked, "--prompt-tokens", "5", "--tokens", "40", "--rounds", "3", "--csv", str(file)])
        == 0
    )
    with file.open(newline="") as text:
        (row,) = csv.DictReader(text)
    parts = {part: float(row[f"{part}_us"]) for part in PARTS if row[f"{part}_us"]}
    assert set(PARTS) - {"norm", "other"} <= parts.keys()
    assert ("norm" in parts) == (rows != "1")
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(float(row["busy_us"]), rel=0.1)  # copies to the host are no kernels
    assert 0 < float(row["limit_us"]) < sum(parts.values())
    assert row["bound_by"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--rounds", "0"], "at least 1"),
        (["--prompt-tokens", "0"], "at least 1"),
        (["--most-s", "nan"], "above 0"),
        (["--batch", "0"], "batch is 0"),
        (["--set", "speed=11"], "speed"),
        (["--only", "fastest"], "no arm has that in its name: triton, graph; "),
    ],
)
def test_that_a_wrong_request_is_named_before_anything_is_measured(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    asked = ["--model", str(tiny_model), "--device", "cpu", "--batch", "1", "--tokens", "2", "--without-transformers"]
    assert main(["generate-bench", *asked, *wrong]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
