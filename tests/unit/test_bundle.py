"""Bundles: out and in again without loss, and refused in words when they are none."""

import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kept_runs import TOGGLES, assert_equal, begun, compared, samples

from explorer.results.bundle import read_bundle, write_bundle
from explorer.results.log import Failure, RunRecord
from explorer.results.sample import Segment
from explorer.results.store import Store
from explorer.results.ways_out import WaysOut


def two_runs() -> list[RunRecord]:
    log, first = begun(1)
    log.begin_segment(1, first.config, Segment(index=1, first_step=40, changes=("=x",), started_at="2026"))
    log.append(1, samples(40, 11_000, 1))
    log.end(
        1,
        "failed",
        "+ why: because",
        WaysOut(flips=(("gelu", "torch"),), batch=4),
        Failure(what="+ why", why="because"),
    )
    second = log.begin_run(5, first.config)
    log.end(5, "stopped")
    return [first, second]


def test_that_runs_come_back_equal_from_a_bundle(tmp_path: Path):
    runs = two_runs()
    write_bundle(tmp_path / "out.zip", runs, toggles=TOGGLES)
    seen = read_bundle(tmp_path / "out.zip").runs
    assert [run.run_id for run in seen] == [1, 5]
    for got, run in zip(seen, runs, strict=True):
        assert_equal(got, run)
    assert str(seen[0].summary(1)) == str(runs[0].summary(1))  # as text, since NaN differs from itself


def test_that_the_tables_in_a_bundle_are_for_people_too(tmp_path: Path):
    write_bundle(tmp_path / "out.zip", two_runs(), toggles=TOGGLES)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        with archive.open("segments.csv") as file:
            assert pd.read_csv(file).precision.tolist() == ["bf16", "bf16"]
        with archive.open("samples.csv") as file:
            assert pd.read_csv(file).step.tolist() == list(range(11_040))
        assert json.loads(archive.read("runs.json"))["runs"][0]["environment"]["torch"] == "2.11.0+cu130"


def test_that_an_imported_run_is_kept_once_beside_those_of_this_machine(tmp_path: Path):
    write_bundle(tmp_path / "out.zip", two_runs()[:1], toggles=TOGGLES)
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep([begun(1)[1]])
        for _ in range(2):
            store.keep(read_bundle(tmp_path / "out.zip").runs, origin="out.zip")
        listed = store.runs().runs
        assert [(line.samples, line.origin) for line in listed] == [(40, None), (11_040, "out.zip")]
        again = store.load(2)
    (imported,) = read_bundle(tmp_path / "out.zip").runs
    assert_equal(again, imported)


def test_that_a_run_exported_while_it_was_going_comes_as_incomplete(tmp_path: Path):
    write_bundle(tmp_path / "out.zip", [begun(1)[1]], toggles=TOGGLES)
    (run,) = read_bundle(tmp_path / "out.zip").runs
    assert (run.outcome, run.problem) == ("incomplete", "it was going when it was exported")


def test_that_a_comparison_travels_with_its_runs(tmp_path: Path):
    first, second = two_runs()
    comparison = compared(first, second)
    write_bundle(tmp_path / "out.zip", [first, second], [comparison], toggles=TOGGLES)
    (seen,) = read_bundle(tmp_path / "out.zip").comparisons
    assert str(seen) == str(comparison)  # as text, since NaN differs from itself
    assert seen.result() == comparison.result()
    rewritten_json(tmp_path / "out.zip", lambda content: content["runs"].pop())
    with pytest.raises(ValueError, match="a comparison is of runs that it does not hold"):
        read_bundle(tmp_path / "out.zip")


def test_that_a_bundle_of_another_version_is_read_as_far_as_it_goes(tmp_path: Path):
    path = tmp_path / "out.zip"
    write_bundle(path, two_runs(), toggles=TOGGLES)

    def newer(content: dict[str, Any]) -> None:
        del content["comparisons"]
        content["runs"][0]["environment"]["moon"] = "full"
        content["runs"][0]["environment"]["devices"][0]["moons"] = 2

    rewritten_json(path, newer)
    with zipfile.ZipFile(path) as archive, archive.open("samples.csv") as file:
        table = pd.read_csv(file).drop(columns=["power_w", "block", "skipped"])
    rewritten(path, "samples.csv", table.assign(moon=1).to_csv(index=False).replace("nan", ""))
    seen = read_bundle(path)
    assert seen.comparisons == ()
    assert seen.runs[0].environment == begun(1)[1].environment
    assert np.isnan(seen.runs[0].columns.column("power_w")).all()
    assert set(seen.runs[0].columns.column("block").tolist()) == {-1}
    assert not seen.runs[0].columns.column("skipped").any()
    rewritten(path, "samples.csv", table.drop(columns="step_ms").to_csv(index=False))
    with pytest.raises(ValueError, match="damaged: 'step_ms'"):
        read_bundle(path)


def rewritten(path: Path, name: str, content: str | None) -> None:
    """The bundle at ``path`` with one entry changed, or without it."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for entry, old in entries.items():
            if entry != name:
                archive.writestr(entry, old)
            elif content is not None:
                archive.writestr(entry, content)


def rewritten_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("runs.json"))
    change(content)
    rewritten(path, "runs.json", json.dumps(content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("runs.json", None),
        ("samples.csv", None),
        ("runs.json", "{"),
        ("runs.json", "[]"),
        ("runs.json", "[" * 100_000),
        ("samples.csv", ""),
        ("samples.csv", "run,step\r\n1,0\r\n"),
    ],
)
def test_that_a_bundle_that_lacks_something_is_refused(tmp_path: Path, name: str, content: str | None):
    path = tmp_path / "out.zip"
    write_bundle(path, two_runs(), toggles=TOGGLES)
    rewritten(path, name, content)
    with pytest.raises(ValueError, match=r"out\.zip is no bundle, or damaged: ."):
        read_bundle(path)


def test_that_samples_of_no_run_or_without_sense_are_refused(tmp_path: Path):
    path = tmp_path / "out.zip"
    write_bundle(path, two_runs(), toggles=TOGGLES)
    with zipfile.ZipFile(path) as archive:
        table = archive.read("samples.csv").decode()
    for old, new in ((",compile,", ",later,"), ("\r\n1,0,0,", "\r\n9,0,0,"), (",true,", ",yes,"), (",8192,", ",many,")):
        rewritten(path, "samples.csv", table.replace(old, new, 1))
        with pytest.raises(ValueError, match="is no bundle, or damaged"):
            read_bundle(path)


def test_that_an_archive_of_another_kind_is_named(tmp_path: Path):
    path = tmp_path / "out.zip"
    write_bundle(path, two_runs(), toggles=TOGGLES)
    rewritten(path, "runs.json", '{"format": "photos", "version": 1, "runs": []}')
    with pytest.raises(ValueError, match="its format is 'photos'"):
        read_bundle(path)


def test_that_a_newer_bundle_says_so(tmp_path: Path):
    path = tmp_path / "out.zip"
    write_bundle(path, two_runs(), toggles=TOGGLES)
    rewritten(path, "runs.json", '{"format": "gpt2-explorer bundle", "version": 2, "runs": []}')
    with pytest.raises(ValueError, match="its version is 2, this explorer reads 1; update"):
        read_bundle(path)


def test_that_a_missing_file_or_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"none\.zip cannot be read: No such file"):
        read_bundle(tmp_path / "none.zip")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_bundle(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
def test_that_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match=f"{path} cannot be read: it is a pipe or a device"):
            read_bundle(path)


def test_that_numbers_must_tell_runs_apart(tmp_path: Path):
    first, second = two_runs()
    second.run_id = 1
    for runs in ([first, second], []):
        with pytest.raises(ValueError, match="at least one, and each number once"):
            write_bundle(tmp_path / "out.zip", runs, toggles=TOGGLES)
    assert list(tmp_path.iterdir()) == []


def test_that_a_bundle_with_any_bytes_changed_is_read_or_refused_in_words(tmp_path: Path):
    path = tmp_path / "small.zip"
    write_bundle(path, [begun(1)[1]], toggles=TOGGLES)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        raw = bytearray(whole)
        for place in rng.integers(0, len(raw), rng.integers(1, 5)):
            raw[place] = rng.integers(0, 256)
        path.write_bytes(raw[: rng.choice([len(raw), len(raw) // 2, len(raw) - 3])])
        try:
            read_bundle(path)
        except ValueError as error:  # anything else fails the test
            refused += str(path) in str(error)
    assert refused > 250
