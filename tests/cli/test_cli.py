from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from explorer.commands import WITH_PARSERS_OF_THEIR_OWN
from explorer.config import RunConfig
from explorer.engine import preflight
from explorer.entry import main
from explorer.experiments.script import script
from explorer.optimizations.registry import OPTIMIZATIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(2000)))
    return file


@pytest.fixture
def train(tiny_model: Path, text_file: Path) -> list[str]:
    tiny = ["--model", str(tiny_model), "--device", "cpu", "--text", str(text_file), "--batch", "2", "--seq", "16"]
    return ["run", "--in-process", *tiny]


def test_that_a_run_writes_a_row_a_segment_and_a_row_a_step(
    train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, steps = tmp_path / "runs.csv", tmp_path / "steps.csv"
    then = ["--steps", "30", "--then", "attention=sdpa,batch=4", "--then", "gelu=torch"]
    status = main([*train, *then, "--csv", str(runs), "--samples", str(steps)])
    assert status == 0
    table = pandas.read_csv(runs)
    assert table["attention"].tolist() == ["naive", "sdpa", "sdpa"]
    assert table["gelu"].tolist() == ["hf", "hf", "torch"]
    assert table["batch"].tolist() == [2, 4, 4]
    assert table["outcome"].tolist() == ["completed"] * 3
    rows = pandas.read_csv(steps)
    assert rows["step"].tolist() == list(range(len(rows)))
    for segment in table.itertuples():
        own = rows[rows["segment"] == segment.segment]
        assert len(own) >= 30
        assert segment.loss_last == own["loss"].iloc[-1]
        counted = own[own["phase"] == "steady"] if (own["phase"] == "steady").any() else own.iloc[10:]
        assert segment.n == len(counted)
        assert segment.step_ms_median == pytest.approx(counted["step_ms"].median(), rel=1e-12)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert f"{table['tokens_per_s_median'][0]:,.0f} tokens/s" in printed[0]


def test_that_training_prints_samples_and_saves_its_model(
    train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    sampled = ["--steps", "5", "--sample-every", "2", "--sample-prompt", "def g", "--tokens", "4"]
    assert main([*train, *sampled, "--save", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("--- step 2\ndef g")
    assert "\n--- step 4\ndef g" in printed.out
    assert f"model saved to {folder}" in printed.err
    # What was saved is a model to go on with.
    again = [*train, "--steps", "1", "--model", str(folder), "--weights", "pretrained"]
    assert main(again) == 0
    capsys.readouterr()
    assert main([*again, "--save", str(folder)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main([*train, "--workload", "generate", "--save", str(tmp_path / "new")]) == 2
    assert "generation changes no weights" in capsys.readouterr().err


def test_that_what_disturbs_the_machine_is_said_first_and_kept(
    train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    battery = tmp_path / "supplies" / "BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")
    (battery / "status").write_text("Discharging\n")
    monkeypatch.setattr(preflight, "POWER_SUPPLIES", battery.parent)
    runs = tmp_path / "runs.csv"
    assert main([*train, "--steps", "2", "--csv", str(runs)]) == 0
    said = "this machine runs on its battery, which may lower every clock"
    assert f"note: {said}" in capsys.readouterr().err.splitlines()
    assert pandas.read_csv(runs)["notes"].tolist() == [said]


def test_that_generated_text_is_all_that_standard_output_holds(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["run", "--in-process", "--workload", "generate", "--model", str(tiny_model), "--device", "cpu"]
    asked = [*base, "--prompt", "import os", "--tokens", "12", "--seed", "5"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert text.strip()
    assert main([*asked, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["text"] + "\n" == text
    assert result["segments"][0]["batch"] == 1
    assert result["segments"][0]["ttft_ms"] > 0
    at = next(at for at in range(10, len(text)) if text.index(text[at : at + 2]) == at)
    assert main([*asked, "--json", "--stop", "never", "--stop", text[at : at + 2]]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["text"] == text[:at]
    assert result["segments"][0]["stop"] == json.dumps(["never", text[at : at + 2]], ensure_ascii=False)
    assert main([*asked, "--json", "--repetition-penalty", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] + "\n" != text


def test_that_several_prompts_are_each_continued_and_their_texts_told_apart(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["run", "--in-process", "--workload", "generate", "--model", str(tiny_model), "--device", "cpu"]
    asked = [*base, "--tokens", "12", "--temperature", "0"]
    prompts = ["class A:\n    def f", "x", "import os"]
    alone = []
    for prompt in prompts:
        assert main([*asked, "--json", "--prompt", prompt]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["texts"] == [result["text"]]
        alone.append(result["text"])
    lines = tmp_path / "prompts.txt"
    lines.write_text("x\n\nimport os\n")
    several = [*asked, "--prompt", prompts[0], "--prompts", str(lines)]
    assert main([*several, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["texts"] == alone
    row = result["segments"][0]
    assert (row["batch"], row["prompt"], row["more_prompts"]) == (3, prompts[0], json.dumps(prompts[1:]))
    assert main(several) == 0
    printed = capsys.readouterr().out
    told = "\n\n".join(f"--- prompt {n}\n{p}{t}" for n, (p, t) in enumerate(zip(prompts, alone, strict=True), start=1))
    assert printed == told + "\n"
    assert result["text"] == told


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--set", "gelu=fast"], "allowed: hf, torch, triton"),
        (["--set", "speed=11"], "allowed: precision, "),
        (["--set", "gelu"], "TOGGLE=LEVEL"),
        (["--batch", "0"], "allowed: 1 to 1024"),
        (["--seq", "9000"], "allowed: 8 to 1024"),
        (["--lr", "nan"], "lr is nan"),
        (["--temperature", "1e-40"], "allowed: 0 (greedy), or 1e-06 to 100"),
        (["--csv", "/nowhere/at/all.csv"], "/nowhere/at"),
        (["--csv", "/"], "is a folder"),
        (["--then", "batch=many"], "whole number"),
        (["--workload", "generate", "--steps", "3"], "--tokens"),
        (["--workload", "generate", "--prompts", "/nowhere.txt"], "/nowhere.txt"),
        (["--workload", "generate", "--prompts", "/dev/null"], "has no prompt"),
        (["--workload", "generate", "--batch", "1", "--prompt", "a", "--prompt", "b"], "2 prompts need as many"),
        (["--device", "cuda:93"], "allowed: auto, "),
        (["--model", "/nowhere"], "/nowhere"),
        (["--text", "/nowhere.txt"], "/nowhere.txt"),
        (["--weights", "bundled", "--model", "gpt2"], "bundled"),
    ],
)
def test_that_a_wrong_argument_is_named_with_what_is_allowed(
    train: list[str], capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
) -> None:
    assert main([*train, "--steps", "1", *wrong]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("wrong", [["fly"], ["run", "--workload", "dream"], ["run", "--steps", "0"], ["run", "--fp16"]])
def test_that_what_the_parser_refuses_exits_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "usage:" in said
    if wrong == ["fly"]:
        named = ["run", *WITH_PARSERS_OF_THEIR_OWN]
        assert all(command in said for command in named), "commands with parsers of their own are named, too"


def test_that_a_run_without_a_terminal_tells_how_it_goes(
    train: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.cli_screen.TELL_EVERY_S", 0.0)
    assert main([*train, "--steps", "3"]) == 0
    assert re.search(r"^\d+ s: step [012], \d+\.\d\d ms$", capsys.readouterr().err, re.MULTILINE)


def test_that_toggles_lists_every_toggle_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toggles"]) == 0
    text = capsys.readouterr().out
    assert main(["toggles", "--json"]) == 0
    listed = {
        toggle["name"]: [level["id"] for level in toggle["levels"]] for toggle in json.loads(capsys.readouterr().out)
    }
    assert listed == {o.name: list(o.level_ids()) for o in OPTIMIZATIONS}
    for name, levels in listed.items():
        assert all(word in text for word in (name, *levels))


def test_that_info_names_the_versions_that_are_installed(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["info", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["devices"][-1]["id"] == "cpu"
    for package in ("transformers", "tokenizers", "numpy", "pyqtgraph"):
        assert info[package] == version(package)
    assert info["torch"] == version("torch")


def test_that_ceilings_says_why_a_cpu_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["ceilings", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert "6 N + 12 L d T" in found["formula"]
    cpu = found["devices"][-1]
    assert (cpu["device"], cpu["measured"], cpu["published"]) == ("cpu", None, None)
    assert "no ceiling is measured on a CPU" in cpu["problem"]
    assert main(["ceilings"]) == status == 0
    assert "cpu " in capsys.readouterr().out


def test_that_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """The program as it is started, with its worker in a process of its own."""
    file = tmp_path / "steps.csv"
    asked = ["run", "--workload", "generate", "--model", "mini", "--device", "cpu", "--tokens", "1000"]
    program = subprocess.Popen(
        [sys.executable, "main.py", *asked, "--samples", str(file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Heard also where the tests run in the background, whose children a shell makes deaf to it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert program.stdout is not None
    assert program.stdout.read(1)  # the text has begun
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors.decode()
    with file.open() as steps:
        rows = list(csv.DictReader(steps))
    assert 0 < len(rows) < 1000
    assert [int(row["step"]) for row in rows] == list(range(len(rows)))


def test_that_a_configuration_is_printed_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "--model", "mini", "--batch", "2", "--set", "attention=sdpa"]) == 0
    config = RunConfig(model="mini", batch=2, levels=(("attention", "sdpa"),))
    assert capsys.readouterr().out == script(config)
    assert main(["script", "--set", "attention=fast"]) == 2
