"""What long work in parts shares: how it begins and ends, the time left, and results kept for the next time."""

from __future__ import annotations

import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer

from explorer.experiments.kept import Kept
from explorer.experiments.steps import Steps
from explorer.gui import hints
from explorer.gui.bridge import Bridge
from explorer.gui.file_writer import FileWriter
from explorer.gui.language import from_below, later, tr
from explorer.gui.message_bar import MessageBar
from explorer.messages import Progress
from explorer.results.environment import Environment
from explorer.results.log import RunLog

CLOCK_MS = 500
LEAST_PARTS = 3
"""After fewer nothing can be said of the time that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How long work ended: what went wrong, in words, or nothing."""

    why: str = ""


class LongWork(QObject):
    """A control of work that the worker does in parts; a subclass says what it is, and shows how far it is."""

    ended_words = later("It ended: {why}")

    def __init__(
        self, bridge: Bridge, messages: MessageBar, log: RunLog, *, folder: Path | None, writer: FileWriter
    ) -> None:
        """``folder``: where what was measured is kept, by ``writer``; None: nowhere beyond this window."""
        super().__init__(messages)
        self._bridge = bridge
        self._messages = messages
        self._log = log
        self._kept = KeptFiles(folder, writer, self._not_kept)
        self._conducted = False
        self._ids: set[int] = set()
        self._parts = Parts()
        self._activity = ""
        self._clock = QTimer(self)
        self._clock.setInterval(CLOCK_MS)
        self._clock.timeout.connect(self._show_progress)
        bridge.progress.connect(self._progress)
        bridge.experiment_ended.connect(self._ended)

    @abstractmethod
    def _show_progress(self) -> None:
        """Say what is being done, and how long it may take still."""

    @abstractmethod
    def _show_end(self) -> None:
        """Say what there is, now that nothing is done any more."""

    def _environment(self, *, busy: str) -> Environment | None:
        """What there is to measure on; None: it cannot begin now, and the person has heard why.

        ``busy``: what is said where something else has the worker.
        """
        here = self._log.environment
        if here is not None and not self._bridge.going:
            return here
        words = tr("The worker has not yet said what can run here.") if here is None else busy
        self._messages.show_message(words, severity="warning")
        return None

    def _begin(self, steps: Steps[Ended], *, left: int = 0) -> None:
        """Have the worker do ``steps``, with ``left`` parts to do as far as is known."""
        self._conducted = True
        self._ids.clear()
        self._parts = Parts()
        self._parts.left = left
        self._activity = tr("Waiting for the worker to start…")
        self._messages.clear()
        self._bridge.conduct(steps)
        self._clock.start()
        self._show_progress()

    def _work_id(self) -> int:
        run_id = self._bridge.reserve_id()
        self._ids.add(run_id)
        return run_id

    def _begin_part(self, name: str, left: int) -> None:
        self._parts.begin(name, left)
        self._activity = ""
        self._show_progress()

    def _progress(self, event: Progress) -> None:
        if self._conducted and event.run_id in self._ids:
            self._activity = self._told(event)
            self._show_progress()

    def _told(self, event: Progress) -> str:
        return hints.progress(event)

    def _ended(self, outcome: object) -> None:
        if not self._conducted:
            return  # another experiment's end
        self._conducted = False
        self._clock.stop()
        self._show_end()
        if isinstance(outcome, Ended) and outcome.why:
            self._messages.show_message(tr(self.ended_words, why=from_below(outcome.why)), severity="problem")
        elif failures := self._failures():
            self._messages.show_message(failures, severity="warning")

    def _failures(self) -> str:
        """What failed of its parts, in words; empty where none did, or where they tell it themselves."""
        return ""

    def _not_kept(self, why: str) -> None:
        self._messages.show_message(
            tr("Measured on, but not kept for another time: {why}", why=from_below(why)), severity="warning"
        )


class Parts:
    """The parts of long work as they begin."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._begun = 0
        self.name = ""
        """Of the part that is going."""
        self.left = 0
        """Parts to do, with this one."""

    def begin(self, name: str, left: int) -> None:
        """The part ``name`` begins, or goes on."""
        if name != self.name:
            self._begun += 1
        self.name, self.left = name, left

    def time_left(self) -> str:
        """How long it may take still, in words; empty before that can be told."""
        done = self._begun - 1
        if done < LEAST_PARTS:
            return ""
        left_s = (time.monotonic() - self._began_s) / done * self.left
        return tr("about {time} left", time=_duration(left_s))


class KeptFiles:
    """Files of results in ``folder``, one for each set of conditions; without a folder they last as long as this.

    ``report`` hears why a file could not be written, once for each time; results are kept here all the same.
    ``writer`` writes them: nothing here waits for that.
    """

    def __init__(self, folder: Path | None, writer: FileWriter, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._writer = writer
        self._report = report
        self._kept: dict[str, Kept] = {}

    def of(self, kind: str, conditions: Mapping[str, Any], *, about: Any = None, go_on: bool) -> Kept:
        """What was measured of ``about`` under ``conditions`` before; none of it where all is to be measured anew.

        Raises:
            ValueError, OSError: the file cannot be read, or not be made.
        """
        text = json.dumps(conditions if about is None else [conditions, about], sort_keys=True)
        name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        path = None if self._folder is None else self._folder / f"{name}.json"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not go_on or name not in self._kept:
            kept = self._kept[name] = _Kept(path, conditions, go_on=go_on, writer=self._writer, report=self._report)
            if not go_on:
                kept.remove()
        return self._kept[name]


class _Kept(Kept):
    """Writes its file on another thread, and goes on without it where it cannot be written, and says so."""

    def __init__(
        self,
        path: Path | None,
        conditions: Mapping[str, Any],
        *,
        go_on: bool,
        writer: FileWriter,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(path, conditions, go_on=go_on)
        self._writer = writer
        self._report = report

    def remove(self) -> None:
        """Have what an earlier one wrote, or is about to write, taken away."""
        path = self._path
        if path is not None:
            self._ask(lambda: path.unlink(missing_ok=True))

    def _write(self, path: Path, text: str) -> None:
        self._ask(lambda: super(_Kept, self)._write(path, text))

    def _ask(self, work: Callable[[], object]) -> None:
        self._writer.write(work, lambda why: None if why is None else self._report(why), brief_s=0.0)


def _duration(seconds: float) -> str:
    return tr("{count:.0f} s", count=seconds) if seconds < 90 else tr("{count:.0f} min", count=seconds / 60)
