"""Which files the store of runs takes: damaged, of other versions, of other programs, on other file systems."""

import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kept_runs import assert_equal, begun, samples

from explorer.results.database import default_path, file_system
from explorer.results.log import Failure
from explorer.results.store import Store
from explorer.results.ways_out import WaysOut


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
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(RuntimeError, match=r"newer explorer \(schema 99; this one reads up to 1\): update"):
            Store(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_that_a_file_from_before_there_were_notes_and_ways_out_is_read_and_gone_on_with(
    tmp_path: Path, read_only: bool
):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path) as store:
        store.keep(log.runs)
    connection = sqlite3.connect(path)
    for name in ("notes", "ways_out", "failure", "marks"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {name}")
    connection.close()
    record.notes.clear()
    record.marks.clear()
    with Store(path, read_only=read_only) as store:
        assert_equal(store.load(1), record)
        if not read_only:
            log.note(1, "the clock fell")
            log.mark(1, "pause: profile")
            failure = Failure(what="Out of memory", why="it was too large", remedy="Halve the batch.")
            log.end(1, "failed", "Out of memory: halve the batch.", WaysOut(batch=4), failure)
            store.keep(log.runs)
            assert_equal(store.load(1), record)


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


def test_that_a_file_without_a_column_that_came_later_gets_it(tmp_path: Path):
    path = tmp_path / "runs.sqlite"
    log, record = begun()
    with Store(path) as store:
        store.keep(log.runs)
    connection = sqlite3.connect(path)
    for name in ("power_w", "block", "skipped"):
        connection.execute(f"ALTER TABLE samples DROP COLUMN {name}")
    connection.execute("ALTER TABLE samples ADD COLUMN moon INTEGER NOT NULL DEFAULT 1")
    connection.close()
    with Store(path, read_only=True) as store:
        columns = store.load(1).columns
    assert np.isnan(columns.column("power_w")).all()
    assert set(columns.column("block").tolist()) == {-1}
    assert not columns.column("skipped").any()
    log.append(1, samples(40, 20))
    with Store(path) as store:
        store.keep(log.runs)
        seen = store.load(1).columns
    np.testing.assert_array_equal(seen.column("loss"), record.columns.column("loss"))
    assert seen.column("skipped").tolist() == [False] * 40 + [i % 3 == 0 for i in range(40, 60)]


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
    monkeypatch.delenv("GPT2_EXPLORER_STORE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "gpt2-explorer" / "runs.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "gpt2-explorer" / "runs.sqlite"
    monkeypatch.setenv("GPT2_EXPLORER_STORE", str(tmp_path / "elsewhere"))
    assert default_path() == tmp_path / "elsewhere"


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
