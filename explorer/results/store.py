"""Store: every run kept in an SQLite file, sample by sample, and opened again."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from explorer.results import stored_comparisons
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.database import MOUNTS, default_path, explained, open_database
from explorer.results.environment_text import to_dict
from explorer.results.export import device_name
from explorer.results.log import RunRecord
from explorer.results.numbers import in_ranges
from explorer.results.record_json import failure_to_dict, marks_to_list, record_from_dict, segment_to_dict
from explorer.results.sample_rows import read_samples, write_samples
from explorer.results.schema import ADDED, lacking
from explorer.results.stored import LOST, Listing, StoredComparison, as_of_now, list_comparisons, list_runs
from explorer.results.ways_out import ways_out_to_dict


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
    """The runs kept at ``path`` (default: ``default_path``); several processes may have it open at once.

    Call ``keep`` at least once a second while a run is going: whatever then kills the program, at most the last
    second is lost. Not to be shared between threads.

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

    def keep(
        self,
        records: Iterable[RunRecord],
        comparisons: Iterable[ComparisonRecord] = (),
        *,
        origin: str | None = None,
    ) -> None:
        """Write what is new of these since the last call, all of it or, on an error, nothing.

        A run or comparison that the file has already, as after an import, is not written twice. After an error call
        again: what was not written is still due.

        Args:
            records: runs.
            comparisons: those whose two runs are in the file, or among ``records``.
            origin: where runs that are new to the file came from, if not from here.
        Raises:
            RuntimeError: the file may only be read, is locked, or the disk is full.
        """
        due = [record for record in records if record.uid not in self._kept or not self._kept[record.uid].done]
        compared = list(comparisons)
        if not due and not compared:
            return
        with self._writing():
            kept = {record.uid: self._write(record, origin) for record in due}
            for comparison in compared:
                stored_comparisons.write(self._connection, comparison)
        self._kept |= kept

    def stored_id(self, uid: str) -> int | None:
        """The number under which the run ``uid`` is stored, or None where it is not."""
        with explained(self.path):
            found = self._found(uid)
        return None if found is None else found.id

    def ids(self) -> list[int]:
        """The numbers of all stored runs, in rising order.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path):
            return [id for (id,) in self._connection.execute("SELECT id FROM runs ORDER BY id")]

    def runs(self, limit: int | None = None) -> Listing:
        """The last ``limit`` stored runs, or all, oldest first.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path):
            return list_runs(self._connection, limit)

    def comparisons(self, limit: int | None = None) -> list[StoredComparison]:
        """The last ``limit`` stored comparisons, or all, oldest first.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path), self._readable("a comparison"):
            return list_comparisons(self._connection, limit)

    def load(self, id: int) -> RunRecord:
        """The stored run with this id, which becomes its ``run_id``, with all its samples.

        Raises:
            ValueError: there is none.
            RuntimeError: the file is locked or damaged.
        """
        with self._reading():
            return self._read(id)

    def load_comparison(self, id: int) -> tuple[ComparisonRecord, tuple[RunRecord, RunRecord]]:
        """The stored comparison with this id, and the runs of its arms.

        Raises:
            ValueError: there is none.
            RuntimeError: the file is locked or damaged.
        """
        with self._reading():
            found = stored_comparisons.find(self._connection, id)
            with self._readable(f"comparison {id}"):
                comparison = stored_comparisons.read(self._connection, id)
            a, b = found
            return comparison, (self._read(a), self._read(b))

    def comparisons_among(self, ids: Collection[int]) -> list[ComparisonRecord]:
        """The stored comparisons both of whose runs are among ``ids``, oldest first.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with self._reading(), self._readable("a comparison"):
            return [
                stored_comparisons.read(self._connection, line.id)
                for line in list_comparisons(self._connection, None)
                if set(line.run_ids) <= set(ids)
            ]

    def delete(self, ids: Collection[int]) -> None:
        """Take these runs out of the file, and the comparisons between them: all of them or, on an error, none.

        Raises:
            ValueError: there is no such run, it is going, or only one arm of a comparison would go.
            RuntimeError: the file may only be read, is locked or damaged.
        """
        with self._writing():
            self._check_deletable(set(ids))
            for id in ids:
                stored_comparisons.delete_of_run(self._connection, id)
                for table in ("samples", "segments", "texts"):
                    self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (id,))
                self._connection.execute("DELETE FROM runs WHERE id = ?", (id,))
        self._kept = {uid: kept for uid, kept in self._kept.items() if kept.id not in ids}
        with explained(self.path):
            # By execute() it would end after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")

    def lost(self) -> list[int]:
        """The runs whose program ended before they did, oldest first, but for those that ``settle_lost`` was told of.

        Raises:
            RuntimeError: the file is locked or damaged.
        """
        with explained(self.path):
            rows = self._connection.execute("SELECT id, seen_at FROM runs WHERE outcome = 'running' ORDER BY id")
            return [id for id, seen_at in rows if as_of_now("running", None, seen_at)[0] == "incomplete"]

    def settle_lost(self) -> None:
        """Write down of every lost run that it is incomplete; ``lost`` names it no more.

        Raises:
            RuntimeError: the file may only be read, or is locked.
        """
        with self._writing():
            for id in self.lost():
                self._connection.execute("UPDATE runs SET outcome = 'incomplete', problem = ? WHERE id = ?", (LOST, id))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: RunRecord, origin: str | None) -> _Kept:
        """Write what the file lacks of ``record``; return how much it has then."""
        before = self._kept.get(record.uid) or self._found(record.uid) or self._begin(record, origin)
        if before.done:
            return before
        run, columns = before.id, record.columns
        self._write_segments(run, record, before)
        pieces = record.pieces[before.pieces :]
        self._connection.executemany(
            "INSERT INTO texts VALUES (?, ?, ?)",
            [(run, before.pieces + i, _storable(piece)) for i, piece in enumerate(pieces)],
        )
        write_samples(self._connection, run, columns, after=before.samples)
        total = columns.dropped + len(columns)
        listed = total or sum(kept.figures.steps for kept in record.segments if kept.figures is not None)
        latest = record.segments[-1].config if record.segments else record.config
        self._connection.execute(
            "UPDATE runs SET seen_at = ?, reference = ?, environment = ?, device_name = ?, outcome = ?, problem = ?,"
            " samples = ?, notes = ?, ways_out = ?, failure = ?, marks = ? WHERE id = ?",
            (
                time.time(),
                json.dumps(record.reference.to_dict()),
                None if record.environment is None else json.dumps(to_dict(record.environment)),
                device_name(record.environment, latest),
                record.outcome,
                None if record.problem is None else _storable(record.problem),
                listed,
                json.dumps(record.notes),
                json.dumps(ways_out_to_dict(record.ways_out)),
                json.dumps(failure_to_dict(record.failure)),
                json.dumps(marks_to_list(record.marks)),
                run,
            ),
        )
        done = record.outcome != "running"
        return _Kept(run, total, len(record.segments), before.pieces + len(pieces), done)

    def _write_segments(self, run: int, record: RunRecord, before: _Kept) -> None:
        """Add new segments, and bring the figures of those with new samples up to date."""
        columns = record.columns
        grown = set(np.unique(columns.column("segment")[max(0, before.samples - columns.dropped) :]).tolist())
        for position, kept in enumerate(record.segments):
            index = kept.segment.index
            if position < before.segments and index not in grown:
                continue
            content = segment_to_dict(kept)
            config = content.pop("config")
            summary = dataclasses.asdict(record.summary(index))
            self._connection.execute(
                "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?)",
                (run, position, json.dumps(content), json.dumps(config), json.dumps(summary)),
            )

    def _begin(self, record: RunRecord, origin: str | None) -> _Kept:
        config = json.dumps(record.config.to_dict())
        cursor = self._connection.execute(
            "INSERT INTO runs (uid, started_at, seen_at, config, reference, outcome, samples, origin)"
            " VALUES (?, ?, ?, ?, ?, 'running', 0, ?)",
            (record.uid, record.started_at, time.time(), config, config, origin),
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
        missing = lacking(self._connection)
        added = ", ".join(f"'{default}'" if name in missing else name for name, default in ADDED.items())
        row = self._connection.execute(
            f"SELECT uid, started_at, config, reference, environment, outcome, problem, seen_at, {added}"
            " FROM runs WHERE id = ?",
            (id,),
        ).fetchone()
        if row is None:
            raise ValueError(f"no stored run has the number {id}; stored: {in_ranges(self.ids()) or 'none'}")
        uid, started_at, config, reference, environment, outcome, problem, seen_at, *added_values = row
        outcome, problem = as_of_now(outcome, problem, seen_at)
        texts = self._connection.execute("SELECT piece FROM texts WHERE run = ? ORDER BY position", (id,))
        segments = self._connection.execute(
            "SELECT content, config FROM segments WHERE run = ? ORDER BY position", (id,)
        )
        with self._readable(f"run {id}"):
            values = {
                "uid": uid,
                "started_at": started_at,
                "config": json.loads(config),
                "reference": json.loads(reference),
                "environment": environment and json.loads(environment),
                "segments": [{**json.loads(content), "config": json.loads(config)} for content, config in segments],
                "text": "".join(piece for (piece,) in texts),
                "outcome": outcome,
                "problem": problem,
                **{name: json.loads(value) for name, value in zip(ADDED, added_values, strict=True)},
            }
            record = record_from_dict(values, run_id=id)
            for block in read_samples(self._connection, id):
                record.columns.extend(block)
        return record

    def _check_deletable(self, ids: set[int]) -> None:
        there = dict(self._connection.execute("SELECT id, outcome = 'running' FROM runs").fetchall())
        unknown = sorted(ids - there.keys())
        if unknown:
            raise ValueError(f"no stored run has the number {in_ranges(unknown)}; stored: {in_ranges(there) or 'none'}")
        lost = self.lost()
        going = sorted(id for id in ids if there[id] and id not in lost)
        if going:
            raise ValueError(f"run {', '.join(map(str, going))} is going; wait for its end, or stop it")
        for line in list_comparisons(self._connection, None):
            left = set(line.run_ids) - ids
            if left and left != set(line.run_ids):
                both = " and ".join(map(str, line.run_ids))
                raise ValueError(f"runs {both} are the arms of comparison {line.id}; delete both, or neither")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        if not self.writable:
            raise RuntimeError(f"{self.path} may only be read; runs are not kept")
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # On a full disk SQLite has rolled back by itself, and to ask again is an error that hides the first.
                # Source: sqlite.org/lang_transaction.html, response to errors within a transaction.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One transaction, so that a run that is still being written is seen as of one moment."""
        with explained(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        """Say of content that makes no sense that the file is damaged."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeError(f"stored runs at {self.path}: {what} is damaged: {error}") from error


def _storable(text: str) -> str:
    """Without lone surrogates (bytes of a file name that are no UTF-8), which SQLite cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
