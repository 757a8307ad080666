"""Ctrl-C at any moment of any command: an end within seconds, what was measured kept, exit status 130, no traceback."""

from __future__ import annotations

import csv
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import running, until

from explorer.config import RunConfig
from explorer.entry import main

ROOT = Path(__file__).parents[2]
WITHIN_S = 2.0 + 3.0
"""What is asked for, and what a machine that others use as well may take on top."""


@contextmanager
def ctrl_c_once(fact: Callable[[Path], bool], folder: Path, at_s: list[float]) -> Iterator[None]:
    """Send this process SIGINT once ``fact`` holds of ``folder``, as a terminal does; ``at_s`` gets the moment."""
    # Heard also where the tests run in the background, where a shell makes deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            if fact(folder):
                at_s.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def rows_of(table: str, at_least: int) -> Callable[[Path], bool]:
    """Whether the file of stored runs has so many rows of ``table``."""

    def fact(folder: Path) -> bool:
        try:
            store = sqlite3.connect(f"file:{folder / 'runs.sqlite'}?mode=ro", uri=True)
            try:
                return int(store.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) >= at_least
            finally:
                store.close()
        except sqlite3.Error:  # it is being made
            return False

    return fact


def has(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(folder.rglob(pattern))


@pytest.fixture(autouse=True)
def uncounted_collections() -> Iterator[None]:
    """Hypothesis times the garbage collector by a callback, in which an interrupt is lost: no program has that."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(kept)


CONFIG = ["--batch", "1", "--seq", "8", "--in-process"]
BLOCKS = ["--block-s", "0.01", "--pairs", "2", "--no-parity", "--no-proof"]
COMMANDS: dict[str, tuple[list[str], Callable[[Path], bool], str]] = {
    "run": ([*CONFIG, "--steps", "1000000"], rows_of("samples", 5), "step_ms_median"),
    "run with its diagnosis": ([*CONFIG, "--steps", "1000000", "--diagnose"], rows_of("samples", 5), "step_ms_median"),
    "compare": (
        [*CONFIG, "--b", "gelu=torch", "--block-s", "0.01", "--pairs", "1000000"],
        rows_of("blocks", 4),
        "ci_low",
    ),
    "ladder": ([*CONFIG, "--rungs", "attention=sdpa", "gelu=torch", *BLOCKS], has("*.state.json"), "speedup"),
    "sweep": ([*CONFIG, "--batches", "1,2,4,8,16,32", "--block-s", "0.01"], has("*.state.json"), "step_ms_median"),
    "attribute": ([*CONFIG, "--toggles", "attention=sdpa,gelu=torch", *BLOCKS], has("*.state.json"), "speedup"),
    "floor": ([*CONFIG, "--block-s", "0.01", "--pairs", "2", "--repeats", "1000"], has("floors/*"), ""),
    "kernels": (["--quick", "--variants", "torch,hf", "--in-process"], has("out.csv"), "time_us"),
    "generate-bench": (["--batch", "1", "--tokens", "9", "--most-s", "0.1"], has("out.csv"), "tokens_per_s"),
}
"""Options, what is there when Ctrl-C is pressed, and a column that is measured by then."""


@pytest.mark.parametrize("name", COMMANDS)
def test_that_ctrl_c_keeps_what_was_measured(
    name: str, tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPT2_EXPLORER_STORE", str(tmp_path / "runs.sqlite"))
    options, fact, column = COMMANDS[name]
    table = tmp_path / "out.csv"
    asked = [name.split()[0], "--device", "cpu", *options]
    if name != "kernels":
        asked += ["--model", tiny.model]
    if options[: len(CONFIG)] == CONFIG:
        asked += ["--text", tiny.text]
    if name != "floor":
        asked += ["--csv", str(table)]
    at_s: list[float] = []
    with ctrl_c_once(fact, tmp_path, at_s):
        status = main(asked)
    took_s = time.monotonic() - at_s[0]
    printed = capsys.readouterr()
    assert status == 130, printed.err
    assert "Traceback" not in printed.err
    assert took_s < WITHIN_S
    if name == "floor":
        assert "from 1 comparisons of equal arms" in printed.out
        return
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert any(row[column] for row in rows), "what was measured before is there"


def started(*asked: str) -> subprocess.Popen[bytes]:
    """The program as a terminal starts it: in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "main.py", *asked],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker by /proc")
@pytest.mark.parametrize(
    "asked",
    [
        ("run", "--steps", "5"),
        ("compare", "--b", "gelu=torch"),
        ("compare", "--workload", "generate", "--b", "gelu=torch"),
    ],
)
def test_that_ctrl_c_while_the_worker_starts_ends_it(asked: tuple[str, ...], tmp_path: Path) -> None:
    table = tmp_path / "out.csv"
    program = started(*asked, "--model", "mini", "--device", "cpu", "--no-store", "--csv", str(table))
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    pause = threading.Event()
    while len(workers := children.read_text().split()) < 2:  # multiprocessing's own helper is the first
        assert program.poll() is None, program.communicate()
        pause.wait(0.01)
    pause.wait(0.2)  # among its imports, which take seconds
    began_s = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    printed, errors = program.communicate(timeout=60)
    assert time.monotonic() - began_s < WITHIN_S
    assert (program.returncode, printed, errors) == (130, b"", b"")
    assert not table.exists()
    until(lambda: not any(running(int(worker)) for worker in workers), within_s=WITHIN_S)


AMID_IMPORTS = """
import os, signal, sys
from explorer.entry import main
class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == "explorer.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
signal.signal(signal.SIGINT, signal.default_int_handler)
raise SystemExit(main(["toggles"]))
"""


def test_that_ctrl_c_amid_imports_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", AMID_IMPORTS], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("asked", [["toggles"], ["forecast", "--memory-gib", "24"]], ids=["long", "short"])
def test_that_a_reader_that_has_gone_is_no_traceback(asked: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "main.py", *asked]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # as Python does by itself: a short text is written at the end
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, env=buffered, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
