"""Recorder: keeps what the worker says in the store, on a thread of its own, so that no disk makes a run wait."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explorer.experiments.compare import block_of
from explorer.experiments.recording import record
from explorer.messages import BlockEnded, CacheEmptied, Event, MemorySummary, RunEnded, WorkerLost, WorkerReady
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.export import Cell
from explorer.results.log import RunLog, RunRecord
from explorer.results.store import Store

KEEP_EVERY_S = 0.5
"""With the worker's batches and a writing of its own this stays below the second that a kill may cost."""
CLOSE_WITHIN_S = 10.0


class Recorder:
    """What is begun here is kept, with the events that follow, in the file at ``path``, once it is opened.

    All methods return at once but ``close``. Where the file cannot be opened or written to, that is reported once, in a
    line, and runs go on.

    The thread has a log of its own, fed with the same events: nothing that is being written is shared.

    Args:
        path: the file; None: nothing is kept.
        report: called on the recorder's thread with a line fit to be shown.
        opened: called on the recorder's thread with the open file, before anything is kept.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        report: Callable[[str], None],
        opened: Callable[[Store], object] = lambda store: None,
    ) -> None:
        self._report = report
        self._opened = opened
        self._jobs: queue.SimpleQueue[Callable[[Store], object]] = queue.SimpleQueue()
        self._log = RunLog()
        self._comparisons: dict[str, ComparisonRecord] = {}
        self._due: set[str] = set()
        """Comparisons that may have what the file has not."""
        self._ids: dict[str, int] = {}
        self._failing = False
        self._ending = False
        self._path = path
        self._going = path is not None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to write, what was taken before included."""
        if self._path is not None and self._thread is None:
            self._thread = threading.Thread(target=self._serve, args=(self._path,), name="recorder", daemon=True)
            self._thread.start()

    def begin_run(self, record: RunRecord) -> None:
        """Keep this run, which has just begun, from the events to come."""
        own = RunRecord(
            run_id=record.run_id,
            config=record.config,
            reference=record.reference,
            environment=record.environment,
            uid=record.uid,
            started_at=record.started_at,
        )
        self.ask(lambda store: self._log.add(own))

    def begin_comparison(self, comparison: ComparisonRecord) -> None:
        """Keep this comparison of two runs that were begun here, from the events to come."""
        own = ComparisonRecord(
            run_uids=comparison.run_uids,
            names=comparison.names,
            floor=comparison.floor,
            floor_measured=comparison.floor_measured,
            uid=comparison.uid,
            started_at=comparison.started_at,
        )
        self.ask(lambda store: self._begin_comparison(own))

    def take(self, event: Event) -> None:
        """Keep what ``event`` says of a run that was begun here."""
        self.ask(lambda store: self._take(event))

    def mark(self, run_id: int, text: str) -> None:
        """Keep that ``text`` befell this run, which was begun here, after the steps taken so far."""
        self.ask(lambda store: self._log.mark(run_id, text) if self._log.begun(run_id) else None)

    def end_comparison(self, comparison: ComparisonRecord) -> None:
        """Close this comparison, which was begun here and has all its blocks; its floor is taken as it is now."""
        uid, ended_by = comparison.uid, comparison.ended_by
        floor, measured = comparison.floor, comparison.floor_measured
        self.ask(lambda _: self._change_comparison(uid, ended_by=ended_by, floor=floor, floor_measured=measured))

    def put_beside(self, uid: str, beside: Mapping[str, Cell]) -> None:
        """Keep what was found out about the arms of comparison ``uid`` beside their times, before or after its end."""
        self.ask(lambda store: self._change_comparison(uid, beside=beside))

    def ask(self, job: Callable[[Store], object]) -> None:
        """Have ``job`` done on the recorder's thread, after what was asked for before."""
        if self._going:
            self._jobs.put(job)

    def close(self) -> dict[str, int]:
        """Write the rest and end; a run that has not ended counts as stopped. Returns the runs' numbers by uid."""
        if self._thread is not None:
            self._jobs.put(self._end)
            self._thread.join(CLOSE_WITHIN_S)
        return dict(self._ids)

    # ---- on the thread

    def _serve(self, path: Path) -> None:
        try:
            store = Store(path)
        except (ValueError, RuntimeError) as error:
            self._going = False
            self._report(f"not recorded: {error}")
            return
        with store:
            for note in store.notes:
                self._report(note)
            self._going = store.writable
            self._opened(store)
            if store.writable:
                self._record(store)
        self._going = False

    def _record(self, store: Store) -> None:
        keep_at_s = 0.0
        while not self._ending:
            due = bool(self._log.runs or self._due)
            with contextlib.suppress(queue.Empty):
                self._jobs.get(timeout=max(0.0, keep_at_s - time.monotonic()) if due else None)(store)
            if due and time.monotonic() >= keep_at_s:
                self._keep(store)
                keep_at_s = time.monotonic() + KEEP_EVERY_S
        for run in self._log.runs:
            self._log.end(run.run_id, "stopped")
        self._keep(store)

    def _end(self, _: Store) -> None:
        self._ending = True

    def _take(self, event: Event) -> None:
        if isinstance(event, MemorySummary | CacheEmptied):
            return  # of the process, not of a run
        known = {run.run_id: run for run in self._log.runs}
        # Nothing more is to be kept of a run that has ended.
        if isinstance(event, WorkerReady | WorkerLost) or event.run_id in known:
            record(self._log, event)
        if isinstance(event, RunEnded) and event.run_id in known and event.problem and event.problem.bad_request:
            self._let_go(known[event.run_id])
        if isinstance(event, BlockEnded) and event.run_id in known:
            for comparison in self._comparisons.values():
                if known[event.run_id].uid in comparison.run_uids:
                    comparison.blocks.add(event.arm, event.pair, block_of(event))

    def _let_go(self, run: RunRecord) -> None:
        """Keep nothing of ``run``, which was a wrong request, unless it had begun."""
        if not run.segments:
            self._log.forget(run.run_id)
            of_it = {uid for uid, comparison in self._comparisons.items() if run.uid in comparison.run_uids}
            self._comparisons = {uid: one for uid, one in self._comparisons.items() if uid not in of_it}
            self._due -= of_it

    def _begin_comparison(self, comparison: ComparisonRecord) -> None:
        self._comparisons[comparison.uid] = comparison
        self._due.add(comparison.uid)

    def _change_comparison(self, uid: str, **fields: Any) -> None:
        if uid in self._comparisons:
            self._comparisons[uid] = dataclasses.replace(self._comparisons[uid], **fields)
            self._due.add(uid)

    def _keep(self, store: Store) -> None:
        # What has not begun may turn out to be a wrong request, of which nothing is kept.
        runs = [run for run in self._log.runs if run.segments or run.outcome != "running"]
        there = {run.uid for run in runs} | self._ids.keys()
        due = [one for uid in self._due if there.issuperset((one := self._comparisons[uid]).run_uids)]
        try:
            store.keep(runs, due)
            self._ids |= {run.uid: id for run in runs if (id := store.stored_id(run.uid)) is not None}
        except RuntimeError as error:
            if not self._failing:
                self._report(f"not recorded for now: {error}")
            self._failing = True
            return
        if self._failing:
            self._report("recorded again, with all that was due")
        self._failing = False
        for run in runs:
            if run.outcome != "running":
                self._log.forget(run.run_id)
        self._due -= {one.uid for one in due if one.ended_by is not None}
