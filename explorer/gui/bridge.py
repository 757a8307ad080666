"""The window's side of the worker: the only file of the window that knows the engine."""

from __future__ import annotations

import dataclasses
from typing import Literal, assert_never

from PySide6.QtCore import QObject, QTimer, Signal

from explorer.config import RunConfig
from explorer.engine.isolation import Worker, open_worker
from explorer.experiments.recording import record
from explorer.messages import (
    BlockEnded,
    Event,
    ParityChecked,
    Problem,
    Profiled,
    Progress,
    Reconfigure,
    Refused,
    RunEnded,
    Samples,
    SegmentStarted,
    Start,
    Stop,
    Text,
    WorkerLost,
    WorkerReady,
)
from explorer.results.log import RunLog

State = Literal["absent", "starting", "ready", "running", "stopping"]
DRAIN_EVERY_MS = 100
# A stop is read between steps: one that is this late has a long step (a compilation, a huge batch) before it.
STOP_PATIENCE_MS = 2000


class Bridge(QObject):
    """Owns the worker, writes all that it says into ``log``, and tells the window in batches.

    Every event is in the log before its signal is emitted.
    """

    worker_ready = Signal(object)
    """Environment"""
    progress = Signal(object)
    """Progress"""
    run_started = Signal(int, object)
    """run id, RunConfig as asked for"""
    segment_started = Signal(object)
    """SegmentStarted"""
    samples = Signal(int, list)
    """run id, Samples in order: all that came since the last batch of this run"""
    text = Signal(int, str)
    """run id, text to append"""
    refused = Signal(object)
    """Refused"""
    run_ended = Signal(object)
    """RunEnded; the last signal of a run, also when its worker died"""
    worker_lost = Signal(object)
    """Problem; a run that was going has had its run_ended, with the same problem, already"""
    stop_overdue = Signal()
    state_changed = Signal(str)

    def __init__(self, log: RunLog, *, in_process: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._log = log
        self._in_process = in_process
        self._worker: Worker | None = None
        self._state: State = "absent"
        self._run_id = 0
        self._waiting: Start | None = None
        self._running: RunConfig | None = None
        self._drain = QTimer(self)
        self._drain.setInterval(DRAIN_EVERY_MS)
        self._drain.timeout.connect(self._take_all)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(STOP_PATIENCE_MS)
        self._patience.timeout.connect(self.stop_overdue)

    @property
    def state(self) -> State:
        return self._state

    @property
    def going(self) -> bool:
        """Whether a run was asked for and has not ended."""
        return self._running is not None

    @property
    def running(self) -> RunConfig | None:
        """The configuration that the run that is going was last asked to have, or None."""
        return self._running

    @property
    def can_end_worker(self) -> bool:
        """Whether the worker can be ended alone: a thread of this process cannot."""
        return not self._in_process

    def open(self) -> None:
        """Start a worker, if there is none."""
        if self._worker is None:
            self._worker = open_worker(in_process=self._in_process)
            self._drain.start()
            self._set_state("starting")

    def start(self, config: RunConfig, *, download: bool = False) -> int:
        """Begin a run as soon as the worker is ready (a lost one is replaced), and return its id."""
        assert not self.going
        self._run_id += 1
        self._running = config
        self._waiting = Start(run_id=self._run_id, config=config, download=download)
        self._log.begin_run(self._run_id, config)
        self.open()
        self.run_started.emit(self._run_id, config)
        if self._state == "ready":
            self._send_waiting()
        return self._run_id

    def reconfigure(self, config: RunConfig) -> None:
        """Ask the run that is going to go on with ``config``."""
        assert self._running is not None
        self._running = config
        if self._waiting is not None:
            self._waiting = Start(run_id=self._run_id, config=config, download=self._waiting.download)
        elif self._worker is not None:
            self._worker.send(Reconfigure(run_id=self._run_id, config=config))

    def stop(self) -> None:
        """Ask the run that is going to end at its next step."""
        if self._waiting is not None:
            self._waiting = None
            self._take(RunEnded(run_id=self._run_id, outcome="stopped"))
        elif self._worker is not None and self.going:
            self._worker.send(Stop(run_id=self._run_id))
            self._set_state("stopping")
            self._patience.start()

    def end_worker(self) -> None:
        """Kill the worker, whatever it is doing, and start another.

        Raises:
            RuntimeError: it is a thread of this process.
        """
        if self._worker is None:
            return
        self._worker.kill()
        for event in self._worker.drain():
            self._take(event)
        self._worker = None
        if self.going:
            self._take(RunEnded(run_id=self._run_id, outcome="stopped"))
        self.open()

    def close(self) -> None:
        """End the worker and all timers; nothing is emitted any more."""
        self._drain.stop()
        self._patience.stop()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close(timeout_s=1.0)

    def _take_all(self) -> None:
        if self._worker is not None:
            for event in _merged(self._worker.drain()):
                self._take(event)

    def _take(self, event: Event) -> None:
        record(self._log, event)
        match event:
            case WorkerReady():
                self._set_state("ready")
                self.worker_ready.emit(event.environment)
                self._send_waiting()
            case Progress():
                self.progress.emit(event)
            case BlockEnded() | ParityChecked() | Profiled():
                pass  # of comparisons, which the window does not ask for
            case SegmentStarted():
                self.segment_started.emit(event)
            case Samples():
                self.samples.emit(event.run_id, list(event.samples))
            case Text():
                self.text.emit(event.run_id, event.text)
            case Refused():
                if self._running is not None:
                    self._running = dataclasses.replace(event.config, device=self._running.device)
                self.refused.emit(event)
            case RunEnded():
                self._patience.stop()
                self._running = None
                if self._state in ("running", "stopping"):
                    self._set_state("ready")
                self.run_ended.emit(event)
            case WorkerLost():
                self._lose(event)
            case _:
                assert_never(event)

    def _lose(self, event: WorkerLost) -> None:
        problem = _loss(event)
        worker, self._worker, self._waiting = self._worker, None, None
        if worker is not None:
            worker.close(timeout_s=0.1)  # it is dead: this gives its pipes back
        self._drain.stop()
        self._patience.stop()
        was_going, self._running = self.going, None
        self._set_state("absent")
        if was_going:
            self.run_ended.emit(RunEnded(run_id=self._run_id, outcome="failed", problem=problem))
        self.worker_lost.emit(problem)

    def _send_waiting(self) -> None:
        if self._waiting is not None and self._worker is not None:
            self._worker.send(self._waiting)
            self._waiting = None
            self._set_state("running")

    def _set_state(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)


def _merged(events: list[Event]) -> list[Event]:
    """``events`` with neighbouring samples, and neighbouring pieces of text, of one run put together."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        match last, event:
            case Samples(), Samples() if last.run_id == event.run_id:
                result[-1] = Samples(run_id=event.run_id, samples=last.samples + event.samples)
            case Text(), Text() if last.run_id == event.run_id:
                result[-1] = Text(run_id=event.run_id, text=last.text + event.text)
            case _:
                result.append(event)
    return result


def _loss(event: WorkerLost) -> Problem:
    code = "" if event.exit_code is None else f" with exit code {event.exit_code}"
    last_line = event.last_words.splitlines()[-1] if event.last_words else "it left no message"
    return Problem(
        what=f"The worker ended by itself{code}",
        why=last_line,
        remedy="The next Start begins with a new one.",
        detail=event.last_words,
    )
