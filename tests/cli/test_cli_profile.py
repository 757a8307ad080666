"""The profile command, with its process, and the lines that it gives to be copied."""

from __future__ import annotations

import csv
import gzip
import json
import multiprocessing
import shlex
import signal
import tempfile
from functools import partial
from pathlib import Path

import pytest

from explorer import cli, cli_profile
from explorer.cli_config import config_from
from explorer.config import RunConfig
from explorer.entry import main
from explorer.experiments.command_line import nsys_line, profile_line


@pytest.fixture(scope="module")
def asked(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "2", "--seq", "16"]
    return ["profile", *tiny, "--steps", "2"]


def test_that_a_profile_is_printed_and_written_and_leaves_no_process(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, table = tmp_path / "t.json.gz", tmp_path / "t.csv"
    assert (
        main([*asked, "--set", "attention=sdpa", "--set", "dropout=off", "--trace", str(trace), "--csv", str(table)])
        == 0
    )
    assert not multiprocessing.active_children()
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    steps = [e for e in events if e["name"] == "explorer part step"]
    whole_us = max(e["ts"] + e["dur"] for e in steps) - min(e["ts"] for e in steps)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    parts = [row for row in rows if row["table"] == "part"]
    assert [row["name"] for row in parts] == [
        *("data", "forward", "backward", "clip", "optimizer", "rest of the step"),
    ]
    each_ms = sum(float(row["busy_ms"]) + float(row["waiting_ms"]) for row in parts)
    assert each_ms == pytest.approx(whole_us / 2 / 1e3, rel=1e-9)
    assert sum(float(row["share"]) for row in parts) == pytest.approx(1.0)
    together = next(line for line in lines if line[:1] == ["together"])
    assert float(together[1]) + float(together[2]) == pytest.approx(each_ms, abs=0.002)
    assert float(next(line for line in lines if line[:1] == ["forward"])[1]) == pytest.approx(
        float(parts[1]["busy_ms"]), abs=0.001
    )
    kernels = {row["name"]: row for row in rows if row["table"] == "kernel"}
    assert kernels["aten::_scaled_dot_product_flash_attention_for_cpu"]["part"] == "forward"
    config = config_from(cli._parser().parse_args(shlex.split(printed.splitlines()[-1].split("main.py ")[1])))
    assert dict(config.levels) == {"attention": "sdpa", "dropout": "off"}


@pytest.mark.parametrize(
    "wrong",
    [["--steps", "0"], ["--trace", "/no/such/folder/t.json"], ["--memory", "m.pickle"]],
    ids=" ".join,
)
def test_that_what_cannot_be_done_is_a_wrong_request(
    asked: list[str],
    wrong: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*asked, *wrong]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_that_ctrl_c_ends_it_at_once_and_leaves_nothing(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press_ctrl_c(activity: str) -> None:
        if activity == "profiling":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cli_profile, "_report", press_ctrl_c)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", partial(tempfile.TemporaryDirectory, dir=tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main([*asked, "--trace", str(tmp_path / "t.json")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()
    assert not list(tmp_path.iterdir())
    assert "Traceback" not in capsys.readouterr().err


def test_that_nvtx_ranges_are_refused_where_nobody_would_see_them(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *asked[1:-2], "--steps", "1", "--nvtx", "--in-process", "--no-store"]) == 2
    assert "Nsight Systems sees a CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(batch=32, levels=(("precision", "bf16"), ("cuda_graph", "on")), text="a file.txt", lr=1e-3),
        RunConfig(workload="generate", model="mini", weights="bundled", batch=1, prompt="it's\n", stop=("\n\n", "x y")),
        RunConfig(device="cuda:1", sample_every=10, init_scale=2.0, seed=3, weights="pretrained"),
    ],
    ids=["train", "generate", "rest"],
)
def test_that_lines_to_be_copied_ask_for_the_same_configuration(config: RunConfig) -> None:
    def read(line: str) -> tuple[list[str], RunConfig]:
        before, words = line.split(" python main.py ")
        return shlex.split(before), config_from(cli._parser().parse_args(shlex.split(words)))

    assert read(" " + profile_line(config))[1] == config
    nsys, found = read(nsys_line(config))
    assert found == config
    assert nsys[:2] == ["nsys", "profile"]
    assert nsys[nsys.index("-t") + 1] == "cuda,nvtx"
    assert ("--cuda-graph-trace=node" in nsys) == (config.level("cuda_graph") == "on")
    assert nsys_line(RunConfig(device="cpu")) == nsys_line(RunConfig())
