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
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(2000)))
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "1", "--seq", "8"]
    return ["compare", "--in-process", *tiny]


def test_that_an_arm_with_many_times_the_work_is_called_slower(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, steps = tmp_path / "c.csv", tmp_path / "s.csv"
    wide = ["--b", "batch=4,seq=64", "--block-s", "0.01", "--pairs", "8", "--no-proof"]
    assert main([*tiny, *wide, "--csv", str(file), "--samples", str(steps), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    row = pandas.read_csv(file).iloc[0]
    assert row["verdict"] == printed["verdict"] == "slower"
    assert row["ci_low"] <= row["speedup"] <= row["ci_high"] < 0.9
    assert row["n_pairs"] >= 8
    assert (row["a_batch"], row["b_batch"], row["a_seq"], row["b_seq"]) == (1, 4, 8, 64)
    assert row["b"] == "batch 1 -> 4, seq 8 -> 64"
    assert (row["a_parity"], row["b_parity"]) == ("reference", "reference")  # float32, whatever its batch
    assert (row["a_proof"], row["b_proof"]) == ("not checked", "not checked")
    assert {row["a_dropout"], row["b_dropout"]} == {"off"}
    # The row's figures are those of its steps: the median of A's block medians over that of B's.
    table = pandas.read_csv(steps)
    counted = table[(table["block"] >= 0) & (table["phase"] == "steady")]
    medians = counted.groupby(["run", "block"])["step_ms"].median().unstack(0).dropna().iloc[: row["n_pairs"]]
    assert medians[1].median() / medians[2].median() == pytest.approx(row["speedup"], rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--b", "gelu=fast"], "allowed: hf, torch, triton"),
        (["--b", "gelu"], "TOGGLE=LEVEL"),
        (["--budget-s", "0"], "above 0"),
        (["--pairs", "1"], "at least 2"),
        (["--block-s", "-1"], "above 0"),
        (["--block-s", "nan"], "above 0 and finite"),
        (["--block-s", "inf"], "above 0 and finite"),
        (["--floor", "2"], "share"),
        (["--workload", "generate", "--b", "weight_dtype=int4"], "allowed: fp32, fp16, bf16, int8"),
        (["--workload", "generate", "--batch", "2", "--prompt", "a", "--prompt", "b"], "one prompt, and there are 2"),
        (["--csv", "/nowhere/at/all.csv"], "/nowhere/at"),
        (["--b", "gelu=triton"], "gelu=triton"),
    ],
)
def test_that_a_wrong_comparison_is_refused_with_what_is_allowed(
    tiny: list[str], capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main([*tiny, *wrong]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err


def test_that_an_arms_numbers_stand_beside_its_speed(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.csv"
    quick = ["--b", "gelu=torch", "--block-s", "0.01", "--pairs", "2", "--no-proof"]
    assert main([*tiny, *quick, "--csv", str(file)]) == 0
    row = pandas.read_csv(file, keep_default_na=False).iloc[0]
    assert (row["a_parity"], row["b_parity"]) == ("reference", "within tolerance")
    assert row["b_parity_ok"] in (True, "true")
    assert 0 < float(row["b_logits_rel_error"]) < 1e-5
    assert float(row["b_grad_cosine_min"]) == pytest.approx(1.0, abs=1e-9)
    assert row["b_first_divergence"] == "none"
    assert float(row["b_perplexity"]) == pytest.approx(float(row["b_perplexity_float32"]), rel=1e-5)
    assert float(row["b_perplexity_ratio"]) == pytest.approx(1, rel=1e-5)
    printed = capsys.readouterr().out.splitlines()
    assert printed[2] == "proof of + dropout off: not checked"
    assert printed[3].startswith("parity of gelu hf -> torch: within tolerance; loss over 20 steps off by at most")


def test_that_two_configurations_texts_are_printed_with_the_place_where_they_part(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, other = tmp_path / "rows.csv", "batch=2"  # whose rows draw other numbers from the second token on
    asked = ["--workload", "generate", "--prompt", "import os", "--tokens", "40", "--seed", "5"]
    alone = []
    for batch in ("1", "2"):
        assert main(["run", *tiny[1:], *asked, "--batch", batch, "--json"]) == 0
        alone.append(json.loads(capsys.readouterr().out)["text"])
    same = [a == b for a, b in zip(*alone, strict=False)]
    place = same.index(False)
    assert 0 < place < 40
    quick = ["--no-proof", "--no-parity"]
    assert main([*tiny, *asked, *quick, "--b", other, "--csv", str(rows)]) == 0
    printed = capsys.readouterr().out
    assert "A, fp32 baseline: " in printed
    assert "\nB, batch 1 -> 2: " in printed
    assert all(f"import os{text}\n" in printed for text in alone)
    assert f"the texts part after {place:,} characters: A goes on with" in printed
    assert pandas.read_csv(rows)["batch"].tolist() == [1, 2]
    assert main([*tiny, *asked, *quick, "--b", other, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [arm["text"] for arm in found["arms"]] == alone
    assert (found["parts_after_characters"], found["same"]) == (place, False)
    assert all(arm["tokens_per_s"] > 0 and arm["first_token_ms"] > 0 for arm in found["arms"])
    assert all(arm["peak_allocated_bytes"] > 2**24 for arm in found["arms"])
    assert printed.count(" MiB\n") == 2
    assert main([*tiny, *asked, *quick]) == 0
    assert f"the texts are the same: {len(alone[0]):,} characters" in capsys.readouterr().out
