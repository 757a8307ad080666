"""Opening the SQLite file of stored runs: its place, its journal, and its errors in words."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from explorer.results import schema
from explorer.results.home import home

VARIABLE = "GPT2_EXPLORER_STORE"
"""Environment variable with another place for the file."""
# A write-ahead log needs memory shared between processes, which these file systems do not give between machines.
# Source: sqlite.org/wal.html, "All processes using a database must be on the same host computer".
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")
MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An open file of runs."""

    connection: sqlite3.Connection
    path: Path
    writable: bool
    notes: tuple[str, ...]
    """What is not as usual, in words fit to be shown: no write-ahead log, or read only."""


def default_path() -> Path:
    """Where runs are kept: where ``VARIABLE`` says, else under the user's data folder.

    Source: XDG Base Directory Specification; Apple's File System Programming Guide; Windows' Known Folders.
    """
    elsewhere = os.environ.get(VARIABLE)
    if elsewhere:
        return Path(elsewhere)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(home() / "Library" / "Application Support")
    else:
        base = os.environ.get("XDG_DATA_HOME", "")
        if not os.path.isabs(base):
            base = str(home() / ".local" / "share")
    return Path(base) / "gpt2-explorer" / "runs.sqlite"


def open_database(path: Path, *, read_only: bool, busy_s: float, mounts: Path = MOUNTS) -> Database:
    """Open ``path``, made anew where it is not there. Where it may only be read, it is opened so, with a note.

    Args:
        path: the file.
        read_only: never write, not even to make the file.
        busy_s: how long to wait for another program's lock, in seconds.
        mounts: the table of mounted file systems; where there is none, no file system is taken for a network's.
    Raises:
        ValueError: nothing to read at ``path``, or it is another program's file.
        RuntimeError: it is damaged, locked, of a newer version, or cannot be made there.
    """
    with explained(path):
        if read_only and not path.is_file():
            raise ValueError(f"no runs are stored at {path}")
        if not read_only:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RuntimeError(f"{path.parent} could not be made: {error.strerror}; runs are not kept") from error
            closed = not os.access(path if path.exists() else path.parent, os.W_OK) or not os.access(
                path.parent, os.W_OK
            )
            if not closed:
                return _open_to_write(path, busy_s, mounts)
            if not path.exists():
                raise RuntimeError(f"no permission to write to {path.parent}; runs are not kept")
        return _open_to_read(path, busy_s, asked_for=read_only)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into a RuntimeError that says what is wrong with ``path``."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        why = {
            sqlite3.SQLITE_BUSY: "another program has it locked; try again, or close that program",
            sqlite3.SQLITE_LOCKED: "another program has it locked; try again, or close that program",
            sqlite3.SQLITE_READONLY: "no permission to write to it or its folder",
            sqlite3.SQLITE_FULL: "the disk is full; what was kept before is unchanged",
            sqlite3.SQLITE_CANTOPEN: "it cannot be opened; see whether its folder is there and may be written to",
            sqlite3.SQLITE_CORRUPT: "it is damaged; move it away and a new one is begun (sqlite3's .recover may help)",
            sqlite3.SQLITE_NOTADB: "it is damaged or no SQLite file; move it away and a new one is begun",
        }.get(code, f"SQLite says: {error}")
        raise RuntimeError(f"stored runs at {path}: {why}") from error
    except OSError as error:
        raise RuntimeError(f"stored runs at {path}: {error.strerror}") from error


def file_system(path: Path, mounts: Path) -> str:
    """The type of the file system that holds ``path``, as in ``mounts``; empty where that is not known."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\134", "\\")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # the later of two mounts at one place hides the earlier
            best, kind = point, fields[2]
    return kind


def _open_to_write(path: Path, busy_s: float, mounts: Path) -> Database:
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
    try:
        _check(connection, path)
        # For the place of deleted runs to be given back; SQLite takes it in an empty file only, and before the journal.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        kind = file_system(path.parent, mounts)
        network = kind.startswith(_NETWORK)
        mode = _set_journal(connection, "DELETE" if network else "WAL", busy_s)
        # With a write-ahead log a commit outlives the process, though not always a power cut; without, both.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            schema.create(connection)
        schema.complete(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    notes: tuple[str, ...] = ()
    if mode != "wal":
        where = f"on {kind}" if network else "in this folder"
        notes = (f"{path} is kept with a rollback journal: {where} SQLite's write-ahead log does not work",)
    return Database(connection=connection, path=path, writable=True, notes=notes)


def _set_journal(connection: sqlite3.Connection, wanted: str, busy_s: float) -> str:
    """The journal mode that came of asking for ``wanted``, in small letters."""
    # Two processes that both turn the log on for the first time do not wait for each other by SQLite's timeout.
    deadline = time.monotonic() + busy_s
    while True:
        try:
            return str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]).lower()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _open_to_read(path: Path, busy_s: float, *, asked_for: bool) -> Database:
    uri = path.absolute().as_uri() + "?mode=ro"
    notes = () if asked_for else (f"{path} may only be read: runs can be opened and exported, but are not kept",)
    connection = sqlite3.connect(uri, timeout=busy_s, isolation_level=None, uri=True)
    try:
        try:
            _check(connection, path)
        except sqlite3.OperationalError as error:
            # A write-ahead log cannot be read where its shared memory cannot be made, as in a closed folder.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            connection.close()
            connection = sqlite3.connect(uri + "&immutable=1", timeout=busy_s, isolation_level=None, uri=True)
            _check(connection, path)
            notes = (*notes, "its last changes may not show, since its folder is closed to us")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            raise ValueError(f"no runs are stored at {path}")
    except BaseException:
        connection.close()
        raise
    return Database(connection=connection, path=path, writable=False, notes=notes)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is not ours or is newer than this code."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if application != schema.APPLICATION_ID and (version or application or tables):
        raise ValueError(f"{path} is another program's SQLite file; choose another name")
    if version > schema.SCHEMA_VERSION:
        raise RuntimeError(
            f"{path} was written by a newer explorer (schema {version}; this one reads up to {schema.SCHEMA_VERSION}): "
            "update this one, or choose another file"
        )
