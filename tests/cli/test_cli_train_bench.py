"""The bench of training steps: its requests, its table, and a step taken apart. Steps themselves need a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas
import pytest

from explorer import cli_train_bench
from explorer.cli_train_bench import account
from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.errors import BadRequest
from explorer.engine.training_speed import TrainingSpeed
from explorer.entry import main
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Kernel, Profile

HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, capability=(9, 0), bf16=True)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """A card whose steps take a millisecond a sequence, twice as long uncompiled, and which refuses flash attention.

    Gives the configurations that were measured.
    """
    measured: list[RunConfig] = []

    def speed(*, config: RunConfig, device: DeviceInfo, steps: int, profiled: bool) -> TrainingSpeed:
        measured.append(config)
        if config.level("attention") == "flash":
            raise BadRequest("This cannot run", "flash refuses", "Choose another")
        ms = config.batch * (1.0 if config.level("compile") else 2.0)
        return TrainingSpeed(
            tokens=config.batch * config.seq,
            first_s=3.0,
            step_ms=(ms, 3 * ms, ms),
            peak_reserved_bytes=2**30,
            losses=(1.0, 2.0),
        )

    monkeypatch.setattr(cli_train_bench, "of_ours", speed)
    monkeypatch.setattr(cli_train_bench, "environment", lambda: dataclasses.replace(environment(), devices=(HOPPER,)))
    return measured


def test_that_each_arm_has_a_row_at_each_batch_size_in_the_order_asked_for(
    card: list[RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.csv"
    # The same arm twice: how far apart do two of them lie?
    arms = ["--set", "compile=model", "--set", "compile=model", "--set", "attention=flash", "--set", "gelu=torch"]
    assert main(["train-bench", *arms, "--batch", "2", "--batch", "8", "--seq", "100", "--csv", str(file)]) == 0
    table = pandas.read_csv(file)
    assert table["arm"].tolist() == ["compile=model", "compile=model", "gelu=torch"] * 2
    assert table["batch"].tolist() == [2, 2, 2, 8, 8, 8]
    assert table["step_ms_median"].tolist() == [2.0, 2.0, 4.0, 8.0, 8.0, 16.0]
    assert table["step_ms_p95"].tolist() == [6.0, 6.0, 12.0, 24.0, 24.0, 48.0]
    assert table["tokens_per_s_median"].tolist() == pytest.approx([1e5, 1e5, 5e4] * 2)
    assert table["loss_mean"].tolist() == [1.5] * 6
    assert {config.level("dropout") for config in card} == {"off"}
    assert {config.device for config in card} == {"cuda:0"}
    assert capsys.readouterr().out.count("attention=flash: flash refuses\n") == 2


def test_that_a_preset_is_an_arm_without_dropout(card: list[RunConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-bench", "--preset", "everything", "--preset", "baseline"]) == 0
    everything, baseline = card
    # Source: assets/RESULTS.md, training beside nanoGPT: M with fused AdamW in a CUDA graph.
    assert dict(everything.levels) == {
        "precision": "bf16",
        "attention": "causal",
        "vocab_padding": "128",
        "compile": "model",
        "loss_impl": "fused",
        "residual": "bf16",
        "gelu": "triton_bias",
        "qkv_gradient": "joined",
        "optimizer": "fused",
        "cuda_graph": "on",
        "dropout": "off",
    }
    assert dict(baseline.levels) == {"dropout": "off"}
    assert "preset everything\n" in capsys.readouterr().out


def test_that_where_no_arm_can_run_the_status_says_so(card: list[RunConfig], tmp_path: Path) -> None:
    file = tmp_path / "bench.csv"
    assert main(["train-bench", "--set", "attention=flash", "--csv", str(file)]) == 1
    assert not file.exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([], "give --set, --preset or --nanogpt"),
        (["--set", "gelu=torch", "--steps", "0"], "--steps is 0"),
        (["--set", "gelu=torch", "--batch", "8", "--batch", "0"], "batch is 0"),
        (["--set", "gelu=torch", "--set", "gelu=fast"], "allowed: hf, torch, triton"),
        (["--set", "gelu=torch", "--graph"], "--graph is of nanoGPT's model"),
        (["--set", "gelu=torch", "--nanogpt", "/nowhere"], "/nowhere holds no model.py"),
        (["--set", "gelu=torch", "--csv", "/"], "/ is a folder"),
        (["--set", "gelu=torch", "--device", "cuda:7"], "cuda:7"),
    ],
)
def test_that_a_wrong_request_is_named_before_anything_is_measured(
    card: list[RunConfig], capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main(["train-bench", *wrong]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, card) == ("", [])


def test_that_a_machine_without_cuda_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-bench", "--set", "gelu=torch", "--device", "cpu"]) == 2
    assert "needs a CUDA device" in capsys.readouterr().err


def test_that_a_step_taken_apart_adds_up() -> None:
    profile = Profile(
        device="cuda",
        workload="train",
        steps=1,
        step_ms=10.0,
        busy_ms=8.5,
        launches=3,
        kernels=(
            Kernel(name="nvjet_hsh_128x256", count=4, total_us=5000.0),
            Kernel(name="sm90_xmma_gemm_bf16", count=2, total_us=1500.0),
            Kernel(name="_gelu_backward", count=1, total_us=2000.0),
        ),
        operators=(),
        products=(),
        attention_softmax=(),
        block_forwards=(),
    )
    lines = [line.split(maxsplit=2) for line in account(profile).splitlines()]
    assert lines[:3] == [
        ["6.50", "ms", "matrix products"],
        ["2.00", "ms", "GeLU"],
        ["1.50", "ms", "nothing ran (3 launches)"],
    ]
    assert sum(float(line[0]) for line in lines[:3]) == profile.step_ms
    assert [line[0] for line in lines[3:]] == ["5.000", "1.500", "2.000"]
