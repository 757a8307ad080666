"""A disk that is full, by a file system of one MiB: the run goes on, and what was kept before stays whole."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.config import RunConfig
from explorer.experiments.recorder import Recorder
from explorer.messages import RunEnded, Samples, SegmentStarted
from explorer.results.atomic import replaced
from explorer.results.log import RunLog
from explorer.results.sample import Sample, Segment
from explorer.results.store import Store


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system may be mounted by Linux's root only")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def samples(first: int, count: int) -> Samples:
    made = [
        Sample(
            step=step,
            segment=0,
            phase="steady",
            time_s=step * 0.1,
            tokens=8,
            step_ms=100.0 + step,
            loss=1.0 / (step + 1),
        )
        for step in range(first, first + count)
    ]
    return Samples(run_id=1, samples=tuple(made))


def test_that_a_full_disk_is_told_once_and_the_file_stays_whole(small_disk: Path) -> None:
    config, reports = RunConfig(device="cpu"), []
    recorder = Recorder(small_disk / "runs.sqlite", report=reports.append)
    recorder.open()
    recorder.begin_run(RunLog().begin_run(1, config))
    segment = Segment(index=0, first_step=0, changes=(), started_at="2026-01-02T03:04:05Z")
    recorder.take(SegmentStarted(run_id=1, config=config, segment=segment))
    recorder.take(samples(0, 10))
    there = threading.Event()
    recorder.ask(lambda store: there.set())
    assert there.wait(30)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    recorder.take(samples(10, 20_000))
    recorder.take(RunEnded(run_id=1, outcome="completed"))
    recorder.close()
    (said,) = reports
    assert "not recorded for now: " in said
    assert "the disk is full; what was kept before is unchanged" in said
    filler.unlink()
    with Store(small_disk / "runs.sqlite") as store:
        assert len(store.runs().runs) <= 1  # whole: at most what had been kept by then


def test_that_an_export_to_a_full_disk_is_told_and_leaves_the_old_file(small_disk: Path) -> None:
    table = small_disk / "out.csv"
    table.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="the disk is full"), replaced(table) as file:
        file.write(b"x" * 2**21)
    assert table.read_bytes() == b"old"
    assert [path.name for path in small_disk.iterdir()] == ["out.csv"]
