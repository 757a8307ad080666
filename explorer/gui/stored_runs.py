"""The window's side of the file of stored runs. Whatever takes time is done on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, SignalInstance

from explorer.experiments.recorder import Recorder
from explorer.gui.language import tr
from explorer.optimizations.registry import baseline_levels
from explorer.results.bundle import write_bundle
from explorer.results.importing import read_any
from explorer.results.store import Store
from explorer.results.stored import LOST_AFTER_S

LOOK_AGAIN_MS = round(LOST_AFTER_S * 1e3) + 1000
"""A program that was killed a moment ago counts as going until then."""
CLOSE_WITHIN_S = 1.0
MOST_LOST = 8
"""Runs without an end that are offered at once: the newest."""


class StoredRuns(QObject):
    """The recorder, and what is read beside it. Answers come as signals, in the window's thread.

    Args:
        path: the file; None: nothing is kept, and nothing read.
    """

    said = Signal(str)
    """What hinders recording, or no longer does, in a line"""
    lost = Signal(list)
    """StoredRuns whose program ended before they did, oldest first; never empty"""
    listed = Signal(object)
    """Listing"""
    loaded = Signal(list)
    """RunRecords, under the numbers that they are stored by"""
    changed = Signal(str)
    """The stored runs are others now; what was done, in a line"""
    failed = Signal(str)
    """Why something asked for was not done"""

    def __init__(self, path: Path | None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.recorder = Recorder(path, report=self._say, opened=self._look_for_lost)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setInterval(LOOK_AGAIN_MS)
        self._again.timeout.connect(lambda: self.recorder.ask(self._look_for_lost))

    def open(self) -> None:
        """Open the file, and look for runs without an end. Not before all signals are connected."""
        self.recorder.open()
        if self.kept:
            self._again.start()

    @property
    def kept(self) -> bool:
        """Whether there is a file at all."""
        return self._path is not None

    def read_list(self) -> None:
        """Read the list; ``listed`` brings it."""
        self._read(lambda store: store.runs(), self.listed)

    def load(self, ids: Sequence[int]) -> None:
        """Read these runs with their samples; ``loaded`` brings them."""
        self._read(lambda store: [store.load(id) for id in ids], self.loaded)

    def settle_lost(self) -> None:
        """Offer the runs that were lost until now no more."""
        self._write(Store.settle_lost, None)

    def delete(self, ids: Sequence[int]) -> None:
        """Take these runs out of the file for good."""
        self._write(lambda store: store.delete(ids), tr("Deleted {runs}.", runs=_count(len(ids))))

    def take_in(self, file: Path) -> None:
        """Take in the runs of a bundle, or of a CSV."""

        def run(store: Store) -> None:
            content = read_any(file, toggles=baseline_levels())
            store.keep(content.runs, content.comparisons, origin=file.name)

        self._write(run, tr("Took in the runs of {file}: they are among the stored runs.", file=file.name))

    def write_bundle(self, ids: Sequence[int], bundle: Path) -> None:
        """Write these runs, and the comparisons between them, to ``bundle``."""

        def run(store: Store) -> str:
            records = [store.load(id) for id in ids]
            write_bundle(bundle, records, store.comparisons_among(ids), toggles=baseline_levels())
            return tr("Wrote {runs} to {bundle}.", runs=_count(len(ids)), bundle=bundle)

        self._read(run, self.changed)

    def close(self) -> None:
        """Write what is due and end all threads; nothing is emitted any more."""
        self._closed = True
        self._again.stop()
        self.recorder.close()
        for thread in self._threads:
            thread.join(CLOSE_WITHIN_S)

    # ---- on other threads

    def _say(self, line: str) -> None:
        self._emit(self.said, line)

    def _look_for_lost(self, store: Store) -> None:
        try:
            ids = set(store.lost()[-MOST_LOST:])
            lines = [line for line in store.runs().runs if line.id in ids] if ids else []
        except RuntimeError as error:
            self._emit(self.said, str(error))
            return
        if lines:
            self._emit(self.lost, lines)

    def _read(self, job: Callable[[Store], object], done: SignalInstance) -> None:
        """Do ``job`` on a thread with an opening of its own, so that recording goes on meanwhile."""
        path = self._path
        assert path is not None

        def work() -> None:
            try:
                with Store(path, read_only=True) as store:
                    result = job(store)
            except (ValueError, RuntimeError) as error:
                self._emit(self.failed, str(error))
            else:
                self._emit(done, result)

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, name="stored runs", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self, job: Callable[[Store], object], done: str | None) -> None:
        """Do ``job`` on the recorder's thread."""

        def work(store: Store) -> None:
            try:
                job(store)
            except (ValueError, RuntimeError) as error:
                self._emit(self.failed, str(error))
            else:
                if done is not None:
                    self._emit(self.changed, done)

        self.recorder.ask(work)

    def _emit(self, signal: SignalInstance, value: object) -> None:
        if not self._closed:
            signal.emit(value)


def _count(number: int) -> str:
    return tr("1 run") if number == 1 else tr("{count} runs", count=number)
