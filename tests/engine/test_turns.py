"""Work that gets ready side by side and is timed by turns."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from explorer.engine.turns import Failed, Turn, at_once

LINES = 100


def logged(turn: Turn, *, log: Path, name: str) -> str:
    """Returns its number of compile threads; writes a line when it is ready, and some in its turn."""

    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line} {name}\n")

    write("ready")
    with turn():
        for _ in range(LINES):  # between which another could write
            write("works")
    return os.environ["TORCHINDUCTOR_COMPILE_THREADS"]


def refused(turn: Turn) -> str:
    raise ValueError("no such level\nwith more to say")


def dies(turn: Turn) -> str:
    with turn():
        os._exit(3)


def test_that_turns_begin_when_all_are_ready_and_never_overlap(tmp_path: Path, capfd) -> None:
    log = tmp_path / "log"
    jobs = [partial(logged, log=log, name="a"), refused, dies, partial(logged, log=log, name="b")]
    threads = str(max(1, (os.cpu_count() or 1) // 4))
    assert list(at_once(jobs)) == [
        threads,
        Failed(why="ValueError: no such level"),
        Failed(why="its process ended without a word"),
        threads,
    ]
    lines = log.read_text().splitlines()
    assert sorted(lines[:2]) == ["ready a", "ready b"]
    assert lines[2:] == ["works a"] * LINES + ["works b"] * LINES
    assert "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ
    assert "with more to say" in capfd.readouterr().err
