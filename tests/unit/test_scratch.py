"""Folders in the temporary one: a killed process's is taken away by the next, a living one's never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.results import scratch
from explorer.results.scratch import Scratch, remove_lost

ROOT = Path(__file__).parents[2]
HOLDER = """
from explorer.results.scratch import Scratch
held = Scratch()
(held.path / "state").write_bytes(b"x" * 1000)
print(held.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with such a folder, and that folder."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_that_the_folder_of_a_killed_process_is_taken_away_and_that_of_a_living_one_is_not(
    other: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = other
    with Scratch() as own:
        remove_lost()
        assert (folder / "state").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (folder / "state").exists(), "it could not do so itself"
        remove_lost()
        assert not folder.exists()
        assert own.exists(), "this process's own"
    assert not own.exists()


def test_that_what_only_has_such_a_name_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / scratch.LOCK).touch()
    (kept / "precious").touch()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(kept)
    without_lock = tmp_path / f"{scratch.PREFIX}made-by-another"
    without_lock.mkdir()
    (tmp_path / f"{scratch.PREFIX}file").touch()
    locked_by_link = tmp_path / f"{scratch.PREFIX}linked-lock"
    locked_by_link.mkdir()
    (locked_by_link / scratch.LOCK).symlink_to(kept / scratch.LOCK)
    remove_lost()
    assert (kept / "precious").exists()
    assert without_lock.exists()
    assert locked_by_link.exists()
    assert (tmp_path / f"{scratch.PREFIX}file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_that_another_users_folder_stays(tmp_path: Path) -> None:
    theirs = tmp_path / f"{scratch.PREFIX}theirs"
    theirs.mkdir()
    (theirs / scratch.LOCK).touch()
    os.chown(theirs, 12345, 12345)
    remove_lost()
    assert theirs.exists()


def test_that_without_a_place_nothing_is_left_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    with pytest.raises(OSError, match="not there"):
        Scratch()
    remove_lost()
