"""A disk that takes its time: the window goes on meanwhile."""

from __future__ import annotations

import csv
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFileDialog
from window_bench import Bench, steps

from explorer.gui import file_writer
from explorer.results.store import Store

PATIENCE_S = 20.0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name")
def test_that_an_export_which_its_device_takes_no_byte_of_holds_nothing_up(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe takes nothing until somebody reads: as a disk that hangs."""
    monkeypatch.setattr(file_writer, "BRIEF_S", 0.02)
    pipe = tmp_path / "steps.csv"
    os.mkfifo(pipe)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(pipe), ""))
    may_read = threading.Event()
    read: list[str] = []

    def reads() -> None:
        may_read.wait(PATIENCE_S)  # a window that waits for the pipe is let go then, and fails below
        read.append(pipe.read_text())

    reader = threading.Thread(target=reads, daemon=True)
    reader.start()
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 3000))
    bench.find(QAction, "export_steps_action").trigger()
    assert window.messages.text == f"Writing one row a step to {pipe}…"
    bench.say(steps(start.run_id, 3000, 5))
    assert len(window.log.run(start.run_id).columns) == 3005
    may_read.set()
    bench.until(lambda: window.messages.text == f"Exported one row a step to {pipe}.")
    reader.join()
    assert [int(row["step"]) for row in csv.DictReader(read[0].splitlines())] == list(range(3000)), "as of the click"
    bench.end(start)


def test_that_a_file_of_runs_whose_writes_take_a_second_each_holds_nothing_up(bench: Bench, tmp_path: Path) -> None:
    """Another program holds the file: the kernel's lock, for which each writing waits a second."""
    store = tmp_path / "runs.sqlite"
    window = bench.open("--store", str(store))
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    there = threading.Event()
    window.stored.recorder.ask(lambda _: there.set())
    assert there.wait(PATIENCE_S)
    with sqlite3.connect(store, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        began_s = time.monotonic()
        for batch in range(1, 21):
            bench.say(steps(start.run_id, 5 * batch, 5))
        assert time.monotonic() - began_s < 15, "less than a second for each"
        assert len(window.log.run(start.run_id).columns) == 105
        bench.until(lambda: "another program has it locked" in window.messages.text)
        other.execute("ROLLBACK")
    other.close()
    bench.end(start)
    window.close()
    with Store(store, read_only=True) as kept:
        assert kept.load(1).columns.column("step").tolist() == list(range(105))


def test_that_a_mistake_in_writing_is_the_windows_to_say_and_the_next_file_is_written(
    bench: Bench, tmp_path: Path
) -> None:
    writer = file_writer.FileWriter(bench.open())
    told: list[str | None] = []
    with pytest.raises(ZeroDivisionError):
        writer.write(lambda: 1 / 0, told.append)
    assert writer.write(lambda: (tmp_path / "next").write_text("x"), told.append)
    assert writer.write(lambda: (tmp_path / "no" / "folder").write_text("x"), told.append)
    assert told[0] is None
    assert "No such file" in str(told[1])
    writer.close()
