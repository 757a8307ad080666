"""Runs that the command line keeps, lists, deletes, exports and imports."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest

from explorer.config import RunConfig
from explorer.entry import main
from explorer.results.blocks import Block
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.log import RunLog, RunRecord
from explorer.results.sample import Sample, Segment
from explorer.results.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> list[str]:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(2000)))
    return ["--model", str(tiny_model), "--device", "cpu", "--text", str(text), "--batch", "1", "--seq", "8"]


def made(step_ms: float = 20.0, *, uuid: str = "GPU-1", steps: int = 30, segments: int = 1) -> RunRecord:
    """A run of 30 steps a segment, every one ``step_ms`` long, 1000 tokens each."""
    log = RunLog()
    gpu = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, uuid=uuid)
    log.set_environment(Environment(devices=(gpu,), platform="Linux", python="3.12", explorer="0.1.0"))
    config = RunConfig(model="gpt2", device="cuda:0")
    record = log.begin_run(1, config)
    for index in range(segments):
        log.begin_segment(1, config, Segment(index=index, first_step=steps * index, changes=(), started_at="2026"))
        config = config.with_level("precision", "bf16")
        log.append(
            1,
            [
                Sample(
                    step=step,
                    segment=index,
                    phase="steady",
                    time_s=step * step_ms / 1e3,
                    tokens=1000,
                    step_ms=step_ms,
                    peak_allocated_bytes=2**30,
                )
                for step in range(steps * index, steps * (index + 1))
            ],
        )
    log.end(1, "completed")
    return record


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Runs 1 to 4, of which 3 and 4 are the arms of comparison 1; 2 was imported from another machine."""
    path = tmp_path / "runs.sqlite"
    a, b = made(50.0), made(40.0)
    comparison = ComparisonRecord(run_uids=(a.uid, b.uid), names=("fp32", "bf16"), floor=0.005, floor_measured=False)
    for pair in range(8):
        comparison.blocks.add(0, pair, Block(step_ms=50.0 + 0.01 * pair))
        comparison.blocks.add(1, pair, Block(step_ms=49.0 + 0.01 * pair))
    comparison.ended_by = "settled"
    with Store(path) as opened:
        opened.keep([made(segments=2)])
        opened.keep([made(uuid="GPU-2")], origin="lab.zip")
        opened.keep([a, b], [comparison])
    return path


def content_of(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


# ---- recording


def test_that_a_run_is_kept_as_it_was_measured(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = ["--store", str(tmp_path / "deep" / "runs.sqlite")]
    files = [tmp_path / name for name in ("runs.csv", "steps.csv", "runs2.csv", "steps2.csv")]
    written = ["--csv", str(files[0]), "--samples", str(files[1])]
    asked = ["run", "--in-process", *tiny, "--steps", "12", "--then", "attention=sdpa", *written, *store, "--json"]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 1
    assert main(["export", "--runs", "1", "--csv", str(files[2]), "--samples", str(files[3]), *store]) == 0
    assert files[2].read_bytes() == files[0].read_bytes()
    assert files[3].read_bytes() == files[1].read_bytes()
    assert main(["runs", "--json", *store]) == 0
    (line,) = json.loads(capsys.readouterr().out)["runs"]
    last = pandas.read_csv(files[0]).iloc[-1]
    assert (line["tokens_per_s_median"], line["label"]) == (last["tokens_per_s_median"], last["label"].lstrip("'"))
    assert (line["steps"], line["segments"], line["outcome"]) == (len(pandas.read_csv(files[1])), 2, "completed")


@pytest.mark.parametrize(
    "wrong",
    [
        ["run", "--steps", "2", "--device", "cuda:93"],
        ["run", "--steps", "2", "--text", "/nowhere.txt"],
        ["run", "--steps", "2", "--set", "compile=blocks,cuda_graph=on"],
        ["compare", "--budget-s", "1", "--b", "cuda_graph=on"],
        ["compare", "--budget-s", "1", "--text", "/nowhere.txt"],
    ],
)
def test_that_a_wrong_request_exits_with_2_and_nothing_is_kept_of_it(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    path = tmp_path / "runs.sqlite"
    assert main([wrong[0], "--in-process", *tiny, *wrong[1:], "--store", str(path)]) == 2
    printed = capsys.readouterr()
    assert "error: " in printed.err
    assert "stored as run" not in printed.err
    with Store(path, read_only=True) as store:
        assert store.runs().runs == ()
        assert store.comparisons() == []


@pytest.mark.usefixtures("short_warm_up")
def test_that_a_comparison_is_kept_with_the_figures_that_it_had(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = ["--store", str(tmp_path / "runs.sqlite")]
    files = [tmp_path / name for name in ("c.csv", "s.csv", "c2.csv", "s2.csv")]
    asked = ["compare", "--in-process", *tiny, "--b", "seq=32", "--block-s", "0.02", "--pairs", "8", *store]
    assert main([*asked, "--csv", str(files[0]), "--samples", str(files[1])]) == 0
    words = capsys.readouterr().out
    export = ["export", "--comparison", "1", *store]
    assert main([*export, "--csv", str(files[2]), "--samples", str(files[3])]) == 0
    assert capsys.readouterr().out == words.splitlines(keepends=True)[0], "its checks are in the row only"
    assert files[2].read_bytes() == files[0].read_bytes()
    assert files[3].read_bytes() == files[1].read_bytes()
    assert main([*export, "--floor", "0.9", "--csv", str(files[2])]) == 0
    measured, judged = (pandas.read_csv(file).iloc[0] for file in (files[0], files[2]))
    assert (judged["verdict"], judged["floor"]) != (measured["verdict"], measured["floor"])
    assert judged["speedup"] == measured["speedup"]
    capsys.readouterr()
    assert main(["runs", "--json", *store]) == 0
    listed = json.loads(capsys.readouterr().out)
    (line,) = listed["comparisons"]
    assert (line["run_a"], line["run_b"]) == (1, 2)
    assert [line[name] for name in ("speedup", "ci_low", "ci_high", "n_pairs")] == [
        measured[name] for name in ("speedup", "ci_low", "ci_high", "n_pairs")
    ]


def test_that_nothing_is_kept_where_that_is_asked_for(tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPT2_EXPLORER_STORE", str(tmp_path / "kept" / "runs.sqlite"))
    asked = ["run", "--in-process", *tiny, "--steps", "2"]
    assert main([*asked, "--no-store"]) == 0
    assert not (tmp_path / "kept").exists()
    assert main(asked) == 0
    with Store(tmp_path / "kept" / "runs.sqlite", read_only=True) as store:
        assert [line.samples for line in store.runs().runs] == [2]


def test_that_a_store_that_cannot_be_used_costs_one_line_and_not_the_run(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    damaged = tmp_path / "runs.sqlite"
    damaged.write_bytes(b"no database" * 1000)
    assert main(["run", "--in-process", *tiny, "--steps", "2", "--json", "--store", str(damaged)]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"note: not recorded: stored runs at {damaged}: it is damaged")
    assert json.loads(printed.out)["run"] is None
    assert json.loads(printed.out)["segments"][0]["steps"] == 2


def test_that_a_killed_run_is_in_the_list_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "runs.sqlite"
    asked = ["run", "--workload", "generate", "--model", "mini", "--device", "cpu", "--tokens", "1000"]
    with subprocess.Popen(
        [sys.executable, "main.py", *asked, "--store", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        first_s = time.monotonic()
        text = b""
        while not text or time.monotonic() < first_s + 1.2:
            text += program.stdout.read(1)
            first_s = time.monotonic() if len(text) == 1 else first_s
        os.killpg(program.pid, signal.SIGKILL)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 11)
    assert main(["runs", "--json", "--store", str(path)]) == 0
    (line,) = json.loads(capsys.readouterr().out)["runs"]
    assert line["outcome"] == "incomplete"
    assert 0 < line["steps"] < 1000
    with Store(path, read_only=True) as store:
        kept = store.load(1)
    assert kept.text.startswith(text.decode(errors="ignore")[:8])
    assert kept.columns.column("step").tolist() == list(range(line["steps"]))


# ---- listing and deleting


def test_that_runs_are_listed_with_what_tells_them_apart(store: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["runs", "--store", str(store)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split()[:2] == ["run", "started"]
    cells = lines[1].split("  ")
    assert "+ precision bf16 (2 settings, its last)" in cells
    for word in ("train", "gpt2", "NVIDIA H200", "60", "50,000", "1.00 GiB", "completed"):
        assert word in [cell.strip() for cell in cells]
    assert "NVIDIA H200, from lab.zip" in lines[2]
    assert "1.020x (1.020-1.020)" in lines[-1]
    assert "faster" in lines[-1]
    assert "3, 4" in lines[-1]
    assert printed.err == ""


def test_that_the_list_ends_where_it_is_told_to(store: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["runs", "--json", "--limit", "2", "--store", str(store)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert ([line["run"] for line in listed["runs"]], listed["total"]) == ([3, 4], 4)
    assert [line["peak_allocated_bytes"] for line in listed["runs"]] == [2**30] * 2
    assert main(["runs", "--limit", "3", "--store", str(store)]) == 0
    assert capsys.readouterr().err == "note: the last 3 of 4 runs; --limit 0 lists all\n"
    assert main(["runs", "--limit", "0", "--store", str(store)]) == 0
    printed = capsys.readouterr()
    assert (printed.err, len(printed.out.splitlines())) == ("", 8)


def test_that_an_empty_store_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "none.sqlite"
    assert main(["runs", "--json", "--store", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert main(["runs", "--store", str(path)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"note: no runs are stored at {path} yet\n")
    assert not path.exists()


def test_that_unmeasured_figures_are_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = RunLog()
    with Store(tmp_path / "runs.sqlite") as opened:
        opened.keep([log.begin_run(1, RunConfig())])
    assert main(["runs", "--json", "--store", str(tmp_path / "runs.sqlite")]) == 0
    (line,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["runs"]  # NaN is no JSON
    assert [line[name] for name in ("tokens_per_s_median", "peak_allocated_bytes", "device_name")] == [None] * 3


def test_that_runs_are_deleted(store: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["runs", "--delete", "1,3-4", "--store", str(store)]) == 0
    assert capsys.readouterr().err == "deleted 1, 3-4\n"
    assert main(["runs", "--json", "--store", str(store)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert ([line["run"] for line in listed["runs"]], listed["comparisons"]) == ([2], [])


# ---- exporting and importing


def test_that_chosen_runs_are_exported(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs, steps = tmp_path / "runs.csv", tmp_path / "steps.csv"
    files = ["--csv", str(runs), "--samples", str(steps)]
    assert main(["export", "--runs", "4,1", *files, "--store", str(store)]) == 0
    assert capsys.readouterr().err == ""
    table = pandas.read_csv(runs)
    assert table["run"].tolist() == [4, 1, 1]
    assert table["step_ms_median"].tolist() == [40.0, 20.0, 20.0]
    assert pandas.read_csv(steps)["run"].value_counts().to_dict() == {1: 60, 4: 30}


def test_that_runs_of_two_machines_are_not_put_together_without_a_word(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["export", "--runs", "all", "--csv", str(tmp_path / "runs.csv"), "--store", str(store)]) == 0
    assert capsys.readouterr().err == (
        "note: these runs are of different machines, and their speeds do not compare: "
        "1, 3, 4 on NVIDIA H200, GPU-1; 2 on NVIDIA H200, GPU-2\n"
    )


def test_that_a_bundle_carries_runs_and_comparisons_to_another_store(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bundle, there = tmp_path / "out.zip", ["--store", str(tmp_path / "there.sqlite")]
    assert main(["export", "--runs", "1,3-4", "--bundle", str(bundle), "--store", str(store)]) == 0
    assert main(["import", str(bundle), *there]) == 0
    assert capsys.readouterr().err == "imported as 1-3\n"
    assert main(["import", str(bundle), *there]) == 0
    assert capsys.readouterr().err == "nothing new; 3 of 3 runs were here already\n"
    assert main(["runs", "--json", *there]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [line["imported_from"] for line in listed["runs"]] == ["out.zip"] * 3
    assert [(line["run_a"], line["run_b"]) for line in listed["comparisons"]] == [(2, 3)]
    files = [tmp_path / "here.csv", tmp_path / "there.csv"]
    assert main(["export", "--comparison", "1", "--csv", str(files[0]), "--store", str(store)]) == 0
    assert main(["export", "--comparison", "1", "--csv", str(files[1]), *there]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_that_a_comparison_can_be_judged_anew(store: Path, capsys: pytest.CaptureFixture[str]):
    judge = ["export", "--comparison", "1", "--store", str(store)]
    assert main(judge) == 0
    assert "bf16 against fp32: faster, 1.020x" in capsys.readouterr().out
    assert main([*judge, "--floor", "0.03"]) == 0
    assert "bf16 against fp32: no difference shown, 1.020x" in capsys.readouterr().out


def test_that_a_comparison_without_enough_blocks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a, b = made(), made()
    comparison = ComparisonRecord(run_uids=(a.uid, b.uid), names=("a", "b"), floor=0.005, floor_measured=True)
    with Store(tmp_path / "runs.sqlite") as opened:
        opened.keep([a, b], [comparison])
    assert main(["export", "--comparison", "1", "--store", str(tmp_path / "runs.sqlite")]) == 2
    assert "nothing to judge" in capsys.readouterr().err


def test_that_the_csv_of_another_machine_is_imported_with_its_figures(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    there, other = ["--store", str(store)], ["--store", str(tmp_path / "other.sqlite")]
    csv = tmp_path / "theirs.csv"
    assert main(["export", "--runs", "all", "--csv", str(csv), *there]) == 0
    capsys.readouterr()
    assert main(["import", str(csv), *other]) == 0
    assert capsys.readouterr().err == "imported as 1-4\n"
    assert main(["import", str(csv), *other]) == 0
    assert capsys.readouterr().err == "nothing new; 4 of 4 runs were here already\n"
    assert main(["runs", "--json", *there]) == 0
    wanted = json.loads(capsys.readouterr().out)["runs"]
    assert main(["runs", "--json", *other]) == 0
    seen = json.loads(capsys.readouterr().out)["runs"]
    for run, again in zip(wanted, seen, strict=True):
        assert again["imported_from"] == "theirs.csv"
        for name in ("config", "device_name", "outcome", "steps", "tokens_per_s_median", "peak_allocated_bytes"):
            assert again[name] == run[name], name


def test_that_an_import_of_a_run_that_the_file_has_in_part_brings_the_rest(tmp_path: Path):
    whole = made(segments=2)
    part = RunRecord(
        run_id=1, config=whole.config, reference=whole.reference, uid=whole.uid, started_at=whole.started_at
    )
    part.segments += whole.segments[:1]
    part.columns.extend({name: column[:10] for name, column in whole.columns.columns().items()})
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    with Store(here) as opened:
        opened.keep([part])
    with Store(there) as opened:
        opened.keep([whole])
    bundle = str(tmp_path / "out.zip")
    assert main(["export", "--runs", "all", "--bundle", bundle, "--store", str(there)]) == 0
    assert main(["import", bundle, "--store", str(here)]) == 0
    with Store(here, read_only=True) as opened:
        seen = opened.load(1)
    np.testing.assert_array_equal(seen.columns.column("step"), whole.columns.column("step"))
    assert (len(seen.segments), seen.outcome) == (2, "completed")


# ---- what is refused


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["runs", "--limit", "-1"], "allowed: 0 (all) and above"),
        (["runs", "--delete", "9,2,8"], "no stored run has the number 8-9; stored: 1-4"),
        (["runs", "--delete", "3"], "delete both, or neither"),
        (["runs", "--delete", "all"], "such as 3,5-7"),
        (["runs", "--delete", "3-"], "such as 3,5-7"),
        (["runs", "--delete", "7-5"], "from the smaller number to the larger"),
        (["runs", "--delete", "1-999999999"], "more than 100,000"),
        (["export", "--runs", "1"], "--csv FILE, --samples FILE or --bundle FILE"),
        (["export", "--runs", "7,2,9", "--csv", "{}/x.csv"], "no stored run has the number 7; stored: 1-4"),
        (["export", "--runs", "", "--csv", "{}/x.csv"], "such as 3,5-7"),
        (["export", "--runs", "1", "--csv", "/nowhere/x.csv"], "/nowhere"),
        (["export", "--runs", "1", "--csv", "{}/x.csv", "--floor", "0.1"], "--floor goes with --comparison"),
        (["export", "--comparison", "1", "--floor", "2"], "from 0 to below 1"),
        (["export", "--comparison", "5"], "no stored comparison has the number 5; stored: 1"),
        (["import", "/nowhere.zip"], "/nowhere.zip cannot be read: No such file"),
        (["import", "{}/runs.sqlite"], "is no bundle, or damaged"),
    ],
)
def test_that_a_wrong_request_is_named_with_what_is_allowed(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], words: str
):
    before = content_of(store)
    assert main([*(part.format(tmp_path) for part in wrong), "--store", str(store)]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert content_of(store) == before
    assert not list(tmp_path.glob("x.csv*"))


@pytest.mark.parametrize("command", [["runs", "--delete", "1"], ["export", "--runs", "1", "--csv", "/dev/null"]])
def test_that_nothing_is_made_where_nothing_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
):
    path = tmp_path / "none.sqlite"
    assert main([*command, "--store", str(path)]) == 2
    assert f"no runs are stored at {path}" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("wrong", [["export"], ["export", "--runs", "1", "--comparison", "1"], ["import"]])
def test_that_what_the_parser_refuses_exits_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_that_a_damaged_run_is_left_out_of_the_list_aloud(store: Path, capsys: pytest.CaptureFixture[str]):
    connection = sqlite3.connect(store)
    with connection:
        connection.execute("UPDATE runs SET reference = '{}}' WHERE id = 2")
    connection.close()
    assert main(["runs", "--json", "--store", str(store)]) == 0
    printed = capsys.readouterr()
    assert [line["run"] for line in json.loads(printed.out)["runs"]] == [1, 3, 4]
    assert "note: run 2 is damaged" in printed.err


def test_that_stored_runs_become_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, page = tmp_path / "runs.sqlite", tmp_path / "out.html"
    with Store(store) as opened:
        opened.keep([made(20.0), made(10.0)])
    assert main(["report", "--runs", "all", "--html", str(page), "--store", str(store)]) == 0
    text = page.read_text("utf-8")
    assert '<td class="number">50,000</td>' in text
    assert '<td class="number">100,000</td>' in text
    assert main(["report", "--runs", "9", "--html", str(page), "--store", str(store)]) == 2
    assert "9" in capsys.readouterr().err
    assert page.read_text("utf-8") == text
