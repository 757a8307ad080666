"""The floor command: comparisons of a configuration with itself, which several runs add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer.entry import main

pytestmark = pytest.mark.usefixtures("short_warm_up")


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "1", "--seq", "8"]
    return ["floor", "--in-process", *tiny, "--block-s", "0.01", "--pairs", "2"]


def test_that_runs_add_up_and_are_not_measured_again(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for repeats in ("1", "2", "2"):
        assert main([*tiny, "--repeats", repeats, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [one["comparisons"] for one in found] == [1, 2, 2]
    assert found[0]["ratios"] == found[1]["ratios"][:1]
    assert found[1] == found[2]
    assert found[2]["floor"] is None  # two comparisons are too few
    assert main([*tiny, "--repeats", "2"]) == 0
    assert "not known yet, from 2 comparisons of equal arms; it takes 5" in capsys.readouterr().out


def test_that_a_time_limit_ends_it_and_each_comparison_is_told(
    tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*tiny, "--repeats", "3", "--within-s", "1e-6", "--json"]) == 130
    assert capsys.readouterr().out == "", "it ended while the worker was starting"
    assert main([*tiny, "--repeats", "1", "--within-s", "600", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["comparisons"] == 1
    assert "comparison 1 of 1, 1 to do" in printed.err
    assert main([*tiny, "--within-s", "0"]) == 2


def test_that_an_arm_with_a_large_delay_is_called_slower(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    long = [*tiny, "--pairs", "8"]
    assert main([*long, "--repeats", "1", "--check-delay", "100%", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["delay"], found["comparisons"], found["slower"]) == (1.0, 1, 1)
    assert found["ratios"][0] < 0.75


@pytest.mark.parametrize(
    "wrong", [["--repeats", "0"], ["--block-s", "0"], ["--within-s", "nan"], ["--workload", "generate"]]
)
def test_that_a_wrong_floor_is_refused(tiny: list[str], capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    assert main([*tiny, *wrong]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("share", ["0", "two", "-1%", "200%"])
def test_that_a_delay_that_is_no_share_is_refused(
    tiny: list[str], capsys: pytest.CaptureFixture[str], share: str
) -> None:
    with pytest.raises(SystemExit):
        main([*tiny, f"--check-delay={share}"])
    assert "2% or 0.02" in capsys.readouterr().err
