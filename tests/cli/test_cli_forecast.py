from __future__ import annotations

import json

import pytest

from explorer.cli_forecast import GIB, against
from explorer.config import RunConfig
from explorer.entry import main
from explorer.models import MODELS
from explorer.optimizations.forecasting import memory_forecast


def test_that_a_forecast_says_its_parts_and_the_largest_batch(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["forecast", "--batch", "8", "--set", "precision=bf16", "--set", "attention=sdpa", "--memory-gib", "24"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["peak_bytes"] == sum(
        found[f"{part}_bytes"] for part in ("weights", "gradients", "optimizer", "activations", "logits", "workspace")
    )
    assert found["largest_batch"] > 8
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "fits: 24.00 GiB are free" in text
    assert f"largest batch that does: {found['largest_batch']}" in text


def test_that_what_will_not_fit_is_said_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "--batch", "512", "--memory-gib", "24"]) == 1
    assert "will not fit: 24.00 GiB are free; largest batch that does: " in capsys.readouterr().out
    assert main(["forecast", "--batch", "8", "--memory-gib", "1"]) == 1
    assert "not even batch 1 does" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--model", "/nowhere"], "/nowhere"),
        (["--workload", "generate"], "only training's memory is forecast"),
        (["--memory-gib", "0"], "must be above 0"),
        (["--memory-gib", "1e300"], "at most 1,000,000"),
    ],
)
def test_that_a_wrong_request_is_explained(capsys: pytest.CaptureFixture[str], wrong: list[str], words: str) -> None:
    assert main(["forecast", *wrong]) == 2
    assert words in capsys.readouterr().err


def test_that_a_measured_peak_has_its_forecast_beside_it_where_there_is_one() -> None:
    config = RunConfig(batch=8, device="cuda:0")
    expected = memory_forecast(config, MODELS["gpt2"]).peak_bytes
    assert against(config, expected / 1.25) == f" (forecast {expected / GIB:.2f}, +25.0%)"
    assert against(RunConfig(device="cpu"), GIB) == ""
    assert against(RunConfig(workload="generate", device="cuda:0"), GIB) == ""
