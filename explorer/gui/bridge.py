"""The window's side of the worker: the only file of the window that knows the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, assert_never

from PySide6.QtCore import QObject, QTimer, Signal

from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.engine.resuming import ENDED_BY_HAND, ResumingWorker
from explorer.experiments.recorder import Recorder
from explorer.experiments.recording import record
from explorer.experiments.stall import StallWatch
from explorer.experiments.steps import FreshWorker, Order, Steps
from explorer.gui.event_batches import loss, merged
from explorer.messages import (
    Aside,
    Benched,
    BlockEnded,
    CacheEmptied,
    Event,
    Exported,
    MemorySummary,
    Note,
    ParityChecked,
    Parked,
    Profiled,
    ProfileSteps,
    Progress,
    Reconfigure,
    Refused,
    RunEnded,
    Samples,
    Save,
    Saved,
    SegmentStarted,
    Start,
    StepsProfiled,
    Stop,
    Text,
    WorkerLost,
    WorkerReady,
)
from explorer.results.log import RunLog, RunRecord

EarlyWorker: TypeAlias = ResumingWorker
"""A worker that was started before there is a window; only a Bridge can use it."""
State = Literal["absent", "starting", "ready", "running", "stopping"]
DRAIN_EVERY_MS = 100
# A stop is read between steps: one that is this late has a long step (a compilation, a huge batch) before it.
STOP_PATIENCE_MS = 2000


def start_early() -> EarlyWorker:
    """Start a worker's process, on the main thread, before anything else of the window is imported."""
    return open_worker(in_process=False)


class Bridge(QObject):
    """Owns the worker, writes all that it says into ``log`` and to ``recorder``, and tells the window in batches.

    Every event is in the log before its signal is emitted.
    """

    worker_ready = Signal(object)
    """Environment"""
    progress = Signal(object)
    """Progress"""
    noted = Signal(object)
    """Note"""
    run_started = Signal(int, object)
    """run id, RunConfig as asked for"""
    segment_started = Signal(object)
    """SegmentStarted"""
    samples = Signal(int, list)
    """run id, Samples in order: all that came since the last batch of this run"""
    text = Signal(object)
    """Text"""
    saved = Signal(object)
    """Saved"""
    answered = Signal(object)
    """MemorySummary or CacheEmptied"""
    parked = Signal(object)
    """Parked"""
    refused = Signal(object)
    """Refused"""
    run_ended = Signal(object)
    """RunEnded; the last signal of a run, also when its worker died"""
    block_ended = Signal(object)
    """BlockEnded"""
    steps_profiled = Signal(object)
    """StepsProfiled"""
    pause_ended = Signal(object)
    """RunEnded of what a run paused for, or of any other work that is no run"""
    experiment_started = Signal()
    experiment_ended = Signal(object)
    """What the experiment came to; None where it was called off before it began"""
    worker_lost = Signal(object)
    """Problem; a run that was going has had its run_ended, with the same problem, already"""
    stop_overdue = Signal()
    stalled = Signal(object)
    """Note: no step came for much longer than one takes"""
    state_changed = Signal(str)

    def __init__(
        self,
        log: RunLog,
        recorder: Recorder,
        *,
        in_process: bool,
        worker: EarlyWorker | None = None,
        parent: QObject | None = None,
    ) -> None:
        """``worker``: the one to begin with, which was started before."""
        super().__init__(parent)
        self._log = log
        self._recorder = recorder
        self._in_process = in_process
        self._early = worker
        self._worker: ResumingWorker | None = None
        self._state: State = "absent"
        self._run_id = self._last_number = self._work_id = 0
        self._waiting: Start | None = None
        self._running: RunConfig | None = None
        self._experiment: Steps[Any] | None = None
        self._experiment_begun = False
        self._asked_to_stop = False
        self._spent = False
        """Whether the worker must serve no other run."""
        self._stall = StallWatch()
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
        """Whether a run or an experiment was asked for and has not ended."""
        return self._running is not None or self._experiment is not None

    @property
    def experimenting(self) -> bool:
        """Whether it is an experiment."""
        return self._experiment is not None

    @property
    def running(self) -> RunConfig | None:
        """The configuration that the plain run that is going was last asked to have, or None."""
        return self._running

    @property
    def can_end_worker(self) -> bool:
        """Whether the worker can be ended alone: a thread of this process cannot."""
        return not self._in_process

    def open(self) -> None:
        """Start a worker, if there is none."""
        if self._worker is None:
            self._worker, self._early = self._early or open_worker(in_process=self._in_process), None
            self._spent, self._stall = False, StallWatch()
            self._drain.start()
            self._set_state("starting")

    def start(self, config: RunConfig, *, download: bool = False) -> int:
        """Begin a run as soon as the worker is ready (a lost one is replaced), and return its id."""
        assert not self.going
        self._run_id = self.number_run()
        self._running = config
        self._waiting = Start(run_id=self._run_id, config=config, download=download)
        self._recorder.begin_run(self._log.begin_run(self._run_id, config))
        self.open()
        self.run_started.emit(self._run_id, config)
        if self._state == "ready":
            self._send_waiting()
        return self._run_id

    def begin_runs(self, *configs: RunConfig) -> tuple[int, ...]:
        """Begin runs of an experiment in the log, and return their ids."""
        ids = tuple(self.number_run() for _ in configs)
        for run_id, config in zip(ids, configs, strict=True):
            self.begin_run(run_id, config)
        return ids

    def begin_run(self, run_id: int, config: RunConfig) -> RunRecord:
        """Begin the run of an experiment that ``number_run`` gave this id in the log."""
        record = self._log.begin_run(run_id, config)
        self._recorder.begin_run(record)
        self._run_id = run_id
        return record

    def number_run(self) -> int:
        """The id of one more run of the log; a stored one has it while another may be going."""
        self._last_number += 1
        return self._last_number

    def reserve_id(self) -> int:
        """A run id for work of an experiment that is no run, such as checks: below 0, so that runs count on by one."""
        self._work_id -= 1
        return self._work_id

    def conduct(self, experiment: Steps[Any]) -> None:
        """Drive ``experiment`` from the first moment that the worker is ready."""
        assert not self.going
        self._experiment, self._asked_to_stop = experiment, False
        self.open()
        self.experiment_started.emit()
        if self._state == "ready":
            self._advance(())

    def asked_to_stop(self) -> bool:
        """Whether the person wants the experiment to end: what it is made with."""
        return self._asked_to_stop

    def reconfigure(self, config: RunConfig) -> None:
        """Ask the run that is going to go on with ``config``."""
        assert self._running is not None
        self._running = config
        if self._waiting is not None:
            self._waiting = Start(run_id=self._run_id, config=config, download=self._waiting.download)
        elif self._worker is not None:
            self._worker.send(Reconfigure(run_id=self._run_id, config=config))

    def save(self, folder: str) -> None:
        """Have the model in training written to ``folder`` at the run's next step boundary."""
        assert self._running is not None
        if self._worker is not None:
            self._worker.send(Save(run_id=self._run_id, folder=folder))

    def ask(self, command: Aside) -> None:
        """Have the worker answer between two steps; without a worker nothing comes."""
        if self._worker is not None:
            self._worker.send(command)

    def pause_for(self, command: ProfileSteps) -> None:
        """Have ``command`` done while the run pauses at its next step boundary."""
        assert self._running is not None
        if self._worker is not None:
            self._worker.send(command)

    def mark(self, run_id: int, text: str) -> None:
        """Keep with the run that ``text`` befell it after its last step."""
        self._log.mark(run_id, text)
        self._recorder.mark(run_id, text)

    def end_pause(self, run_id: int) -> None:
        """Call off what the run pauses, or is to pause, for; the run goes on."""
        if self._worker is not None:
            self._worker.send(Stop(run_id=run_id))

    def stop(self) -> None:
        """Ask what is going to end at its next step."""
        if self._waiting is not None:
            self._waiting = None
            self._take(RunEnded(run_id=self._run_id, outcome="stopped"))
        elif self._experiment is not None and not self._experiment_begun:
            self._end_runs()
            self._end_experiment(None)
        elif self._experiment is not None:
            self._asked_to_stop = True
            self._set_state("stopping")
            self._patience.start()
        elif self._worker is not None and self.going:
            self._worker.send(Stop(run_id=self._run_id))
            self._set_state("stopping")
            self._patience.start()

    def end_worker(self) -> None:
        """Kill the worker, whatever it is doing, and start another. A run ends with it.

        But where it is in the midst of what its state was parked for, and was not asked to stop, it goes on from there.

        Raises:
            RuntimeError: it is a thread of this process.
        """
        if self._worker is None:
            return
        told = self._worker.interrupt() if self._state == "running" and self._running is not None else []
        if told:
            for event in told:
                self._take(event)
            return
        self._worker.kill()
        events = self._worker.drain()
        for event in events:
            self._take(event)
        self._worker = None
        self._set_state("absent")
        if self._running is not None:
            self._take(RunEnded(run_id=self._run_id, outcome="stopped"))
        self._end_runs()
        self._advance((*events, WorkerLost(exit_code=None, last_words=ENDED_BY_HAND)))
        self.open()

    def close(self) -> None:
        """End the worker and all timers; nothing is emitted any more."""
        if self._experiment is not None:
            self._experiment.close()
        self._drain.stop()
        self._patience.stop()
        worker, self._worker = self._worker or self._early, None
        if worker is not None:
            worker.close(timeout_s=1.0)

    def _take_all(self) -> None:
        if self._worker is not None:
            events = merged(self._worker.drain())
            for event in events:
                self._take(event)
            self._advance(events)
            self._renew_if_spent()
            self._stall.take(events)
            note = self._stall.look()
            if note is not None:
                record(self._log, note)
                self._recorder.take(note)
                self.stalled.emit(note)

    def _take(self, event: Event) -> None:
        if isinstance(event, SegmentStarted | Samples) and event.run_id < 0:
            return  # of work that is no run, such as a floor's comparisons
        record(self._log, event)
        self._recorder.take(event)
        if isinstance(event, RunEnded) and event.problem is not None and event.problem.spent:
            self._spent = True
        match event:
            case WorkerReady():
                self._set_state("running" if self._experiment_begun else "ready")
                self.worker_ready.emit(event.environment)
                self._send_waiting()
            case Progress():
                self.progress.emit(event)
            case Note():
                self.noted.emit(event)
            case BlockEnded():
                self.block_ended.emit(event)
            case ParityChecked() | Profiled() | Benched() | Exported():
                pass  # the experiment that asked for them takes them itself
            case StepsProfiled():
                self.steps_profiled.emit(event)
            case SegmentStarted():
                self.segment_started.emit(event)
            case Samples():
                self.samples.emit(event.run_id, list(event.samples))
            case Text():
                self.text.emit(event)
            case Saved():
                self.saved.emit(event)
            case MemorySummary() | CacheEmptied():
                self.answered.emit(event)
            case Parked():
                self.parked.emit(event)
            case Refused():
                if self._running is not None:
                    self._running = dataclasses.replace(event.config, device=self._running.device)
                self.refused.emit(event)
            case RunEnded() if event.run_id < 0:
                self.pause_ended.emit(event)  # also where its run ended meanwhile and an experiment has begun
            case RunEnded() if self._experiment is not None:
                pass  # one of its runs: the experiment knows when all of it is over
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

    def _renew_if_spent(self) -> None:
        """Put another worker in the place of one that can serve no more; a thread of this process stays."""
        if not self._spent or self.going or self._in_process or self._worker is None:
            return
        worker, self._worker = self._worker, None
        worker.close(timeout_s=0.1)
        self.open()

    def _lose(self, event: WorkerLost) -> None:
        problem = loss(event)
        worker, self._worker, self._waiting = self._worker, None, None
        if worker is not None:
            worker.close(timeout_s=0.1)  # it is dead: this gives its pipes back
        self._drain.stop()
        self._patience.stop()
        was_running, self._running = self._running is not None, None
        self._set_state("absent")
        if was_running:
            self.run_ended.emit(RunEnded(run_id=self._run_id, outcome="failed", problem=problem))
        self.worker_lost.emit(problem)

    def _advance(self, events: Sequence[Event]) -> None:
        """Give the experiment what came, and do what it orders."""
        if self._experiment is None:
            return
        try:
            if self._experiment_begun:
                orders = self._experiment.send(events)
            elif self._state == "ready":
                self._experiment_begun = True
                self._set_state("running")
                orders = next(self._experiment)
            else:
                return
        except StopIteration as end:
            self._end_experiment(end.value)
            return
        for order in orders:
            self._do(order)

    def _do(self, order: Order) -> None:
        if isinstance(order, FreshWorker):
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.close(timeout_s=1.0)
            self.open()
        elif self._worker is not None:
            self._worker.send(order)

    def _end_runs(self) -> None:
        for run in self._log.runs:
            self._log.end(run.run_id, "stopped")  # those that have ended stay as they are
            self._recorder.take(RunEnded(run_id=run.run_id, outcome="stopped"))

    def _end_experiment(self, result: object) -> None:
        self._experiment, self._experiment_begun = None, False
        self._patience.stop()
        if self._state in ("running", "stopping"):
            self._set_state("ready")
        self.experiment_ended.emit(result)

    def _send_waiting(self) -> None:
        if self._waiting is not None and self._worker is not None:
            self._worker.send(self._waiting)
            self._waiting = None
            self._set_state("running")

    def _set_state(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)
