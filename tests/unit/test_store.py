"""The store of runs: on real files, with real other processes, killed and damaged."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer.config import RunConfig
from explorer.results.database import default_path, file_system
from explorer.results.environment import DeviceInfo, Environment, Finding
from explorer.results.export import segment_row
from explorer.results.log import RunLog, RunRecord
from explorer.results.sample import Sample, Segment
from explorer.results.store import Store

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, capability=(9, 0), bf16=True)
HERE = Environment(
    devices=(GPU, DeviceInfo(id="cpu", kind="cpu", name="A processor", total_memory_bytes=2**34)),
    platform="Linux",
    python="3.12.3",
    explorer="0.1.0",
    torch="2.11.0+cu130",
    findings=(Finding(severity="note", text="no datasets"),),
)
CONFIG = RunConfig(device="cuda:0", seed=7, prompt="naïve 🙂 'q'").with_level("precision", "bf16")
TOGGLES = {"precision": "fp32"}


def samples(first: int, count: int, segment: int = 0) -> list[Sample]:
    rng = np.random.default_rng(first)
    return [
        Sample(
            step=i,
            segment=segment,
            phase=("compile", "warmup", "steady", "prefill")[i % 4],
            time_s=i / 3,
            tokens=8192,
            step_ms=float(rng.lognormal(3, 1)),
            loss=float("nan") if i % 5 == 0 else float(rng.normal()),
            grad_norm=float("inf") if i % 7 == 0 else 1.5,
            skipped=i % 3 == 0,
            peak_allocated_bytes=2**40 + i,
        )
        for i in range(first, first + count)
    ]


def begun(number: int = 1) -> tuple[RunLog, RunRecord]:
    log = RunLog()
    log.set_environment(HERE)
    record = log.begin_run(number, CONFIG)
    log.begin_segment(number, CONFIG, Segment(index=0, first_step=0, changes=(), started_at="2026-01-02T03:04:05Z"))
    log.append(number, samples(0, 40))
    log.append_text(number, "Once ")
    return log, record


def assert_equal(seen: RunRecord, record: RunRecord) -> None:
    for name in ("uid", "started_at", "config", "reference", "environment", "segments", "text", "outcome", "problem"):
        assert getattr(seen, name) == getattr(record, name), name
    assert len(seen.columns) == len(record.columns)
    for name, column in record.columns.columns().items():
        np.testing.assert_array_equal(seen.columns.column(name), column, err_msg=name)


def test_that_a_run_kept_bit_by_bit_comes_back_equal_in_another_opening(tmp_path: Path):
    log, record = begun()
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
        other = dataclasses.replace(CONFIG, batch=16)
        segment = Segment(index=1, first_step=40, changes=("batch 8 -> 16",), started_at="2026-01-02T03:05:00Z")
        log.begin_segment(1, other, segment)
        log.append(1, samples(40, 25, 1))
        store.keep(log.runs)
        log.append_text(1, "upon\x00 a time")
        log.append(1, samples(65, 1, 1))
        log.end(1, "failed", "Out of memory: halve the batch.")
        store.keep(log.runs)
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        (line,) = store.runs()
        assert (line.uid, line.config, line.samples, line.outcome) == (record.uid, CONFIG, 66, "failed")
        seen = store.load(line.id)
    assert_equal(seen, record)
    assert segment_row(seen, 1, toggles=TOGGLES) == segment_row(record, 1, toggles=TOGGLES)


def test_that_keeping_again_writes_nothing_twice(tmp_path: Path):
    log, record = begun()
    log.end(1, "completed")
    for _ in range(2):
        with Store(tmp_path / "runs.sqlite") as store:
            store.keep(log.runs)
            store.keep(log.runs)
    with Store(tmp_path / "runs.sqlite") as store:
        assert [line.samples for line in store.runs()] == [40]
        assert store.stored_id(record) == 1
        assert_equal(store.load(1), record)


def test_that_a_run_goes_on_being_kept_after_the_file_was_opened_anew(tmp_path: Path):
    log, record = begun()
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
    log.append(1, samples(40, 10))
    log.end(1, "stopped")
    with Store(tmp_path / "runs.sqlite") as store:
        store.keep(log.runs)
        assert_equal(store.load(1), record)


def test_that_samples_dropped_from_memory_stay_in_the_file(tmp_path: Path):
    record = RunRecord(run_id=1, config=CONFIG, reference=CONFIG, capacity=80)
    with Store(tmp_path / "runs.sqlite") as store:
        for start in range(0, 300, 20):
            record.columns.append(samples(start, 20))
            store.keep([record])
        assert record.columns.dropped > 200
        assert store.load(1).columns.column("step").tolist() == list(range(300))


def test_that_a_killed_program_loses_only_what_was_not_yet_kept_and_its_run_counts_as_lost(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    code = """
        import sys; from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from test_store import Store, begun, samples
        log, record = begun()
        store = Store(Path(sys.argv[1]))
        for start in range(40, 1000, 40):
            log.append(1, samples(start, 40))
            store.keep(log.runs)
        log.append(1, samples(1000, 40))  # these come too late
        print("ready", flush=True)
        sys.stdin.read()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path), os.getcwd(), str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
    with Store(path) as store:
        assert store.load(1).columns.column("step").tolist() == list(range(1000))
        assert store.runs()[0].outcome == "running"
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 11)
        assert store.runs()[0].outcome == "failed"
        assert "the program ended before the run did" in store.load(1).problem


def test_that_two_processes_make_and_fill_one_file_at_once(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    code = """
        import sys; from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from test_store import Store, begun, samples
        print("ready", flush=True); sys.stdin.readline()
        log, record = begun()
        with Store(Path(sys.argv[1]), busy_s=20) as store:
            for start in range(40, 400, 20):
                log.append(1, samples(start, 20))
                store.keep(log.runs)
            log.end(1, "completed")
            store.keep(log.runs)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), str(path), os.getcwd(), str(Path(__file__).parent)]
    children = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.communicate(b"go\n")
        assert child.returncode == 0
    with Store(path, read_only=True) as store:
        assert [(line.samples, line.outcome) for line in store.runs()] == [(400, "completed")] * 2
        assert [store.load(line.id).columns.column("step").tolist() for line in store.runs()] == [[*range(400)]] * 2


def test_that_a_locked_file_is_told_and_what_was_due_is_written_later(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path, busy_s=0.01) as store:
        store.keep(log.runs)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log.append(1, samples(40, 5))
        with pytest.raises(RuntimeError, match="another program has it locked"):
            store.keep(log.runs)
        other.execute("ROLLBACK")
        other.close()
        log.end(1, "completed")
        store.keep(log.runs)
        assert_equal(store.load(1), record)


def test_that_runs_that_ended_and_are_kept_ask_for_no_lock(tmp_path: Path):
    log, _ = begun()
    log.end(1, "completed")
    with Store(tmp_path / "runs.sqlite", busy_s=0.01) as store:
        store.keep(log.runs)
        other = sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.keep(log.runs)
        other.close()


def test_that_an_error_while_writing_leaves_nothing_of_that_call(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, _ = begun()
    with Store(path) as store:
        store.keep(log.runs)
        segment = Segment(index=1, first_step=40, changes=(), started_at="2026")
        log.begin_segment(1, CONFIG, segment)
        log.append(1, [*samples(40, 5, 1), *samples(44, 1, 1)])  # step 44 twice: not allowed by the file
        with pytest.raises(RuntimeError, match="UNIQUE constraint failed"):
            store.keep(log.runs)
        seen = store.load(1)
        assert (len(seen.segments), len(seen.columns)) == (1, 40)


@pytest.mark.parametrize("content", [b"run,segment\r\n1,0\r\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_that_a_file_that_is_no_database_is_told_and_not_touched(tmp_path: Path, content: bytes):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(RuntimeError, match=r"damaged.*move it away"):
            Store(path, read_only=read_only)
    assert path.read_bytes() == content


def test_that_a_file_damaged_in_the_middle_is_told(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, _ = begun()
    log.append(1, samples(40, 4000))
    with Store(path) as store:
        store.keep(log.runs)
    raw = bytearray(path.read_bytes())
    raw[20_000:-20_000] = b"\xa5" * (len(raw) - 40_000)
    path.write_bytes(raw)
    with Store(path) as store, pytest.raises(RuntimeError, match="it is damaged; move it away"):
        store.load(1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET config = '{}}'",
        "UPDATE runs SET config = '{\"speed\": 3}'",
        "UPDATE runs SET environment = '{}'",
        "UPDATE segments SET content = '[]'",
        "UPDATE samples SET phase = 'later'",
    ],
)
def test_that_content_that_makes_no_sense_is_told(tmp_path: Path, statement: str):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.keep(begun()[0].runs)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
    with Store(path) as store, pytest.raises(RuntimeError, match="run 1 is damaged"):
        store.load(1)


def test_that_a_file_of_a_newer_version_is_refused_and_left(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(RuntimeError, match=r"newer explorer \(schema 2; this one reads up to 1\): update"):
            Store(path, read_only=read_only)


def test_that_another_programs_database_is_refused(tmp_path: Path):
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (id)")
    connection.close()
    with pytest.raises(ValueError, match="another program's SQLite file"):
        Store(path)


def test_that_reading_makes_no_file_and_an_unknown_run_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="no runs are stored"):
        Store(tmp_path / "none.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []
    with Store(tmp_path / "runs.sqlite") as store, pytest.raises(ValueError, match="no stored run has the number 3"):
        store.load(3)


def test_that_a_store_opened_to_read_keeps_nothing(tmp_path: Path):
    Store(tmp_path / "runs.sqlite").close()
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        assert (store.writable, list(store.notes)) == (False, [])
        with pytest.raises(RuntimeError, match="may only be read"):
            store.keep(begun()[0].runs)


def journal(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


def test_that_the_log_is_written_ahead_where_it_can_be(tmp_path: Path):
    nowhere = tmp_path / "mounts"
    with Store(tmp_path / "runs.sqlite", mounts=nowhere) as store:
        assert list(store.notes) == []
    assert journal(tmp_path / "runs.sqlite") == "wal"


def test_that_on_a_network_file_system_a_rollback_journal_is_used_and_said(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    log, record = begun()
    with Store(tmp_path / "runs.sqlite", mounts=mounts) as store:
        store.keep(log.runs)
        assert "rollback journal: on nfs4" in store.notes[0]
        assert_equal(store.load(1), record)
    assert journal(tmp_path / "runs.sqlite") == "delete"


def test_that_the_file_system_is_that_of_the_innermost_and_last_mount(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nserver:/a /home nfs rw 0 0\n/dev/sdb /home/me\\040too xfs rw 0 0\n"
        "/dev/sdc /data ext4 rw 0 0\n//server/b /data cifs rw 0 0\nbad line\n"
    )
    seen = {
        path: file_system(Path(path), mounts) for path in ("/etc", "/home/you", "/home/me too/x", "/data/y", "/homes")
    }
    assert seen == {"/etc": "ext4", "/home/you": "nfs", "/home/me too/x": "xfs", "/data/y": "cifs", "/homes": "ext4"}
    assert file_system(Path("/etc"), tmp_path / "none") == ""


def test_that_the_usual_place_is_the_users_data_folder(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "gpt2-explorer" / "runs.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "gpt2-explorer" / "runs.sqlite"


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder with a store in it, which may not be written to; not under tmp_path, whose parents shut others out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store(folder / "runs.sqlite") as store:
            store.keep(begun()[0].runs)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o700)


def test_that_in_a_closed_folder_runs_are_read_and_the_reason_is_said(closed_folder: Path):
    code = """
        import os, sys; from pathlib import Path
        from explorer.results.store import Store
        if os.geteuid() == 0:
            os.setuid(65534)  # root may write everywhere
        folder = Path(sys.argv[1])
        with Store(folder / "runs.sqlite") as store:
            print(store.writable, len(store.load(1).columns), *store.notes)
        try:
            Store(folder / "other.sqlite")
        except RuntimeError as error:
            print(error)
    """
    python = [sys.executable, "-c", textwrap.dedent(code), str(closed_folder)]
    done = subprocess.run(python, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False 40 ")
    assert "may only be read: runs can be opened and exported, but are not kept" in done.stdout
    assert f"no permission to write to {closed_folder}; runs are not kept" in done.stdout
