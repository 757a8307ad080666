"""Store: every run kept in an SQLite file, sample by sample, and opened again."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from explorer.config import RunConfig
from explorer.results.database import MOUNTS, default_path, explained, open_database
from explorer.results.environment_text import to_dict
from explorer.results.log import RunRecord
from explorer.results.record_json import record_from_dict, segment_to_dict
from explorer.results.ring import DTYPES, PHASE_CODES, PHASES, Columns

LOST_AFTER_S = 10.0
"""A run that is said to be going but was not kept for so long ended with its program."""
_LOST = "the program ended before the run did; at most its last second is missing"
_BLOCK_ROWS = 10_000
_NAMES = ", ".join(DTYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A line of the list of stored runs."""

    id: int
    uid: str
    started_at: str
    config: RunConfig
    samples: int
    outcome: str
    problem: str | None


@dataclass(slots=True)
class _Kept:
    """How much of a run is in the file."""

    id: int
    samples: int = 0
    segments: int = 0
    pieces: int = 0
    done: bool = False
    """Whether the run had ended: nothing is added after that."""


class Store:
    """The runs kept at ``path`` (default: the user's data folder); several processes may have it open at once.

    Call ``keep`` once a second while a run is going: whatever then kills the program, at most the last second is
    lost. Not to be shared between threads.

    Args:
        path: the SQLite file; made where it is not there.
        read_only: never write.
        busy_s: how long to wait for another program's lock, in seconds.
        mounts: the table of mounted file systems.
    Raises:
        ValueError: ``read_only`` and nothing there, or another program's file.
        RuntimeError: the file is damaged, locked, of a newer version, or cannot be made.
    """

    def __init__(
        self, path: Path | None = None, *, read_only: bool = False, busy_s: float = 1.0, mounts: Path = MOUNTS
    ) -> None:
        self._database = open_database(path or default_path(), read_only=read_only, busy_s=busy_s, mounts=mounts)
        self._connection = self._database.connection
        self._kept: dict[str, _Kept] = {}

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def writable(self) -> bool:
        """Whether runs can be kept, not only read."""
        return self._database.writable

    @property
    def notes(self) -> Sequence[str]:
        """What is not as usual, in words fit to be shown."""
        return self._database.notes

    def keep(self, records: Iterable[RunRecord]) -> None:
        """Write what is new of these runs since the last call, all of it or, on an error, nothing.

        A run that the file has already, as after an import, is not written twice. After an error call again: what
        was not written is still due.

        Raises:
            RuntimeError: the file may only be read, is locked, or the disk is full.
        """
        if not self.writable:
            raise RuntimeError(f"{self.path} may only be read; runs are not kept")
        due = [record for record in records if record.uid not in self._kept or not self._kept[record.uid].done]
        if not due:
            return
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                kept = {record.uid: self._write(record) for record in due}
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        self._kept |= kept

    def stored_id(self, record: RunRecord) -> int | None:
        """The number under which ``record`` is stored, or None where it is not."""
        with explained(self.path):
            found = self._found(record.uid)
        return None if found is None else found.id

    def runs(self) -> list[StoredRun]:
        """Every stored run, oldest first.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT id, uid, started_at, config, samples, outcome, problem, seen_at FROM runs ORDER BY id"
            ).fetchall()
        listed = []
        for id, uid, started_at, config, samples, outcome, problem, seen_at in rows:
            outcome, problem = _as_of_now(outcome, problem, seen_at)
            with self._readable(id):
                read = RunConfig.from_dict(json.loads(config))
            listed.append(
                StoredRun(
                    id=id,
                    uid=uid,
                    started_at=started_at,
                    config=read,
                    samples=samples,
                    outcome=outcome,
                    problem=problem,
                )
            )
        return listed

    def load(self, id: int) -> RunRecord:
        """The stored run with this id, which becomes its ``run_id``, with all its samples.

        Raises:
            ValueError: there is none.
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path):
            # One transaction, so that a run that is still being written is seen as of one moment.
            self._connection.execute("BEGIN")
            try:
                return self._read(id)
            finally:
                self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: RunRecord) -> _Kept:
        """Write what the file lacks of ``record``; return how much it has then."""
        before = self._kept.get(record.uid) or self._found(record.uid) or self._begin(record)
        if before.done:
            return before
        run, columns = before.id, record.columns
        segments, pieces = record.segments[before.segments :], record.pieces[before.pieces :]
        self._connection.executemany(
            "INSERT INTO segments VALUES (?, ?, ?)",
            [(run, before.segments + i, json.dumps(segment_to_dict(kept))) for i, kept in enumerate(segments)],
        )
        self._connection.executemany(
            "INSERT INTO texts VALUES (?, ?, ?)",
            [(run, before.pieces + i, _storable(piece)) for i, piece in enumerate(pieces)],
        )
        for start in range(max(0, before.samples - columns.dropped), len(columns), _BLOCK_ROWS):
            self._connection.executemany(
                f"INSERT INTO samples VALUES ({', '.join('?' * (len(DTYPES) + 1))})",
                _rows(run, columns.columns(slice(start, start + _BLOCK_ROWS))),
            )
        total = columns.dropped + len(columns)
        self._connection.execute(
            "UPDATE runs SET seen_at = ?, reference = ?, environment = ?, outcome = ?, problem = ?, samples = ?"
            " WHERE id = ?",
            (
                time.time(),
                json.dumps(record.reference.to_dict()),
                None if record.environment is None else json.dumps(to_dict(record.environment)),
                record.outcome,
                None if record.problem is None else _storable(record.problem),
                total,
                run,
            ),
        )
        done = record.outcome != "running"
        return _Kept(run, total, before.segments + len(segments), before.pieces + len(pieces), done)

    def _begin(self, record: RunRecord) -> _Kept:
        config = json.dumps(record.config.to_dict())
        cursor = self._connection.execute(
            "INSERT INTO runs (uid, started_at, seen_at, config, reference, outcome, samples)"
            " VALUES (?, ?, ?, ?, ?, 'running', 0)",
            (record.uid, record.started_at, time.time(), config, config),
        )
        assert cursor.lastrowid is not None
        return _Kept(cursor.lastrowid)

    def _found(self, uid: str) -> _Kept | None:
        """What the file has of the run, from an earlier opening or an import."""
        row = self._connection.execute(
            "SELECT id, samples, (SELECT count(*) FROM segments WHERE run = id),"
            " (SELECT count(*) FROM texts WHERE run = id), outcome != 'running' FROM runs WHERE uid = ?",
            (uid,),
        ).fetchone()
        return None if row is None else _Kept(*row)

    def _read(self, id: int) -> RunRecord:
        row = self._connection.execute(
            "SELECT uid, started_at, config, reference, environment, outcome, problem, seen_at FROM runs WHERE id = ?",
            (id,),
        ).fetchone()
        if row is None:
            raise ValueError(f"no stored run has the number {id}; the list of runs has those there are")
        uid, started_at, config, reference, environment, outcome, problem, seen_at = row
        outcome, problem = _as_of_now(outcome, problem, seen_at)
        texts = self._connection.execute("SELECT piece FROM texts WHERE run = ? ORDER BY position", (id,))
        segments = self._connection.execute("SELECT content FROM segments WHERE run = ? ORDER BY position", (id,))
        samples = self._connection.execute(f"SELECT {_NAMES} FROM samples WHERE run = ? ORDER BY step", (id,))
        with self._readable(id):
            values = {
                "uid": uid,
                "started_at": started_at,
                "config": json.loads(config),
                "reference": json.loads(reference),
                "environment": environment and json.loads(environment),
                "segments": [json.loads(content) for (content,) in segments],
                "text": "".join(piece for (piece,) in texts),
                "outcome": outcome,
                "problem": problem,
            }
            record = record_from_dict(values, run_id=id)
            while block := samples.fetchmany(_BLOCK_ROWS):
                record.columns.extend(_columns(block))
        return record

    @contextmanager
    def _readable(self, id: int) -> Iterator[None]:
        """Say of a run whose content makes no sense that the file is damaged."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeError(f"stored runs at {self.path}: run {id} is damaged: {error}") from error


def _as_of_now(outcome: str, problem: str | None, seen_at: float) -> tuple[str, str | None]:
    """The outcome, that of a run whose program died included."""
    if outcome == "running" and time.time() - seen_at > LOST_AFTER_S:
        return "failed", _LOST
    return outcome, problem


def _rows(run: int, columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Samples as SQLite takes them: phases by name; NaN becomes NULL by itself."""
    values = [column.tolist() for column in columns.values()]
    phase = list(columns).index("phase")
    values[phase] = [PHASES[code] for code in values[phase]]
    return zip(itertools.repeat(run), *values)


def _columns(rows: Sequence[tuple[Any, ...]]) -> Columns:
    fields = dict(zip(DTYPES, zip(*rows, strict=True), strict=True))
    fields["phase"] = tuple(PHASE_CODES[phase] for phase in fields["phase"])
    # numpy reads None, SQLite's NULL, as NaN.
    return {name: np.array(values, dtype=DTYPES[name]) for name, values in fields.items()}


def _storable(text: str) -> str:
    """Without lone surrogates (bytes of a file name that are no UTF-8), which SQLite cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
