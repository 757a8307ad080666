"""A worker that is killed while it works: noticed, named, its steps kept, in the window's log and headless."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from explorer.config import RunConfig
from explorer.entry import main
from explorer.messages import WorkerLost
from explorer.results.store import Store


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, " on SIGKILL, which a system sends that is out of memory"),
        (-signal.SIGSEGV, " on SIGSEGV"),
        (-63, " on signal 63"),
        (1, " with exit code 1"),
        (None, ""),
    ],
)
def test_that_its_end_is_named(code: int | None, words: str) -> None:
    assert WorkerLost(exit_code=code, last_words="").how == words


def test_that_a_killed_worker_of_a_headless_run_is_named_at_once_and_its_steps_are_kept(
    tiny: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = tmp_path / "runs.sqlite", tmp_path / "steps.csv"
    killed_at_s: list[float] = []

    def kill_once_steps_are_kept() -> None:
        pause = threading.Event()
        while not (store.exists() and _kept_steps(store)):
            pause.wait(0.05)
        (worker,) = multiprocessing.active_children()
        assert worker.pid is not None
        killed_at_s.append(time.monotonic())
        os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once_steps_are_kept)
    killer.start()
    options = f"--model {tiny.model} --text {tiny.text} --device cpu --batch 2 --seq 16 --steps 1000000"
    status = main(["run", *options.split(), "--store", str(store), "--samples", str(table)])
    took_s = time.monotonic() - killed_at_s[0]
    killer.join()
    assert status == 1
    assert took_s < 2 + 2  # noticed, and the tables written
    told = capsys.readouterr().err
    assert "error: The worker ended by itself on SIGKILL" in told
    assert "What was measured until then is kept." in told
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with Store(store, read_only=True) as stored:
        record = stored.load(1)
    assert record.outcome == "failed"
    assert len(record.columns) == len(rows) >= 1


def _kept_steps(store: Path) -> int:
    try:
        with Store(store, read_only=True) as stored:
            return len(stored.load(1).columns) if stored.ids() else 0
    except (ValueError, RuntimeError):  # it is being made
        return 0
