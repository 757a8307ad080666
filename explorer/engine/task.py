"""What the worker does between a command and its RunEnded, which is always sent."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Generic, Literal, TypeVar

import torch

from explorer.config import RunConfig
from explorer.engine import ceilings, kept_ceilings
from explorer.engine.aftermath import in_use_bytes, spoilt
from explorer.engine.disturbance import ClockWatch, SleepWatch
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.preflight import preflight
from explorer.engine.problems import describe
from explorer.engine.session import Session
from explorer.messages import (
    Bench,
    Command,
    Compare,
    Event,
    Export,
    Note,
    Problem,
    Progress,
    RunEnded,
    Samples,
    SegmentStarted,
    Text,
    Verify,
    Work,
)
from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.loss_watch import LossWatch
from explorer.results.sample import Sample, Segment

EMIT_EVERY_S = 0.05
"""Samples travel in batches: one event a step would cost the window more than the step costs the device."""

Outcome = Literal["completed", "stopped", "failed"]


Asked = TypeVar("Asked", bound=Work)


class Task(ABC, Generic[Asked]):
    """``serve`` does it on the worker thread; a subclass says how. The stop flag is read before each step."""

    def __init__(
        self,
        command: Asked,
        flag: threading.Event,
        commands: queue.SimpleQueue[Command],
        emit: Callable[[Event], None],
        here: Environment,
    ) -> None:
        self._command = command
        self._download = command.download
        self._run_ids = command.run_ids if isinstance(command, Compare) else (command.run_id,)
        self._config = _first(command)
        """What is being done now, for the words of an error."""
        self._before: RunConfig | None = None
        """What was being done before a setting changed."""
        self._flag = flag
        self._commands = commands
        self._emit = emit
        self._here = here
        self._later: list[Work] = []
        self._held: list[Sample] = []
        self._held_of = self._run_ids[0]
        self._emitted_at_s = 0.0
        self._ceilings: Ceilings | None = None
        self._clocks = {run_id: ClockWatch() for run_id in self._run_ids}
        self._losses = {run_id: LossWatch() for run_id in self._run_ids}
        self._sleep = SleepWatch()
        self._sleeps = 0
        """How often the machine has slept meanwhile."""

    def serve(self) -> list[Work]:
        """Do it, say how it ended, and return the commands to begin something that came meanwhile."""
        outcome: Outcome = "failed"
        problem: Problem | None = None
        device: DeviceInfo | None = None
        held_bytes = in_use_bytes()
        try:
            try:
                device = self._here.device(self._config.device)
            except ValueError as error:
                raise BadRequest(what="No such device", why=str(error)) from error
            outcome = self._run_on(device)
        except Cancelled:
            outcome = "stopped"
        except Exception as error:  # the worker's border: whatever happened becomes words
            problem = describe(error, self._config, device, self._before)
        # The error's frames are gone now, and with them the last references to its tensors.
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            # A poisoned context answers every call with its first error, which has been described already.
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()
        why = spoilt(held_bytes)
        if why is not None:
            outcome, problem = "failed", _spent(problem, why)
        self._send_held()
        for run_id in self._run_ids:
            self._emit(RunEnded(run_id=run_id, outcome=outcome, problem=problem))
        return self._later

    @abstractmethod
    def _run_on(self, device: DeviceInfo) -> Outcome:
        """Do it on ``device``; returns how it ended, or raises why it failed."""

    def _look_at(self, device: DeviceInfo) -> None:
        """Before anything is loaded: say what disturbs on ``device``, and know its ceilings."""
        for line in preflight(device):
            self._note(line, *self._run_ids)
        if device.kind == "cpu":
            return
        self._ceilings = kept_ceilings.known(device)
        if self._ceilings is None:
            self._report("measuring what this device can do at best, once", None, None, "")
            try:
                self._ceilings = ceilings.measured(device)
            except RuntimeError as error:
                # Too little memory for it is no reason not to run; whatever else fails, fails in the run as well.
                self._note(f"no ceiling was measured: {str(error).splitlines()[0]}", *self._run_ids)

    def _open(self, config: RunConfig, device: DeviceInfo) -> Session:
        return Session(config, device, download=self._download, report=self._report, cancelled=self._flag.is_set)

    def _announce(self, run_id: int, session: Session, changes: tuple[str, ...], *, index: int = 0) -> None:
        segment = Segment(
            index=index,
            first_step=session.loop.next_step,
            changes=changes,
            started_at=datetime.now().astimezone().isoformat(timespec="milliseconds"),
            flop_per_token=session.flop_per_token,
            ceiling_tflop_per_s=None if self._ceilings is None else self._ceilings.product_tflop_per_s,
        )
        self._emit(SegmentStarted(run_id=run_id, config=session.config, segment=segment))
        self._report("first step: loading kernels", None, None, "")

    def _take(
        self, run_id: int, session: Session, *, all_of_them: bool = False, at_the_end: bool = False
    ) -> list[Sample]:
        """Collect what is over, and send it on in batches; returns it, too. ``at_the_end``: no text comes after it."""
        if run_id != self._held_of:
            self._send_held()
            self._held_of = run_id
        taken = session.loop.collect(all_of_them=all_of_them)
        self._held += taken
        watched = (*self._clocks[run_id].look(taken), *self._losses[run_id].look(taken, session.config))
        for line in (*session.loop.take_told(), *watched):
            self._note(line, run_id)
        now_s = time.monotonic()
        if now_s - self._emitted_at_s >= EMIT_EVERY_S or all_of_them:
            self._emitted_at_s = now_s
            self._send_held()
            slept = self._sleep.look()
            if slept is not None:
                self._sleeps += 1
                self._note(slept, *self._run_ids)
            for row in range(session.loop.texts):
                text = session.loop.end_text(row) if at_the_end else session.loop.take_text(row)
                if text:
                    self._emit(Text(run_id=run_id, text=text, row=row))
        return taken

    def _send_held(self) -> None:
        if self._held:
            self._emit(Samples(run_id=self._held_of, samples=tuple(self._held)))
            self._held.clear()

    def _note(self, text: str, *run_ids: int) -> None:
        for run_id in run_ids:
            self._emit(Note(run_id=run_id, text=text))

    def _report(self, activity: str, done: float | None, total: float | None, unit: str) -> None:
        self._emit(Progress(run_id=self._run_ids[0], activity=activity, done=done, total=total, unit=unit))


def _first(command: Work) -> RunConfig:
    match command:
        case Compare():
            return command.arms[0]
        case Verify():
            return (*command.parity, *command.proof)[0]
        case Bench():
            return RunConfig(device=command.device)
        case Export():
            return dataclasses.replace(command.config, device="cpu")
        case _:
            return command.config


def _spent(problem: Problem | None, why: str) -> Problem:
    """``problem``, or one of its own, of a run after which this process must run no other because of ``why``."""
    if problem is None:
        problem = Problem(what="The device failed", why=why)
    elif why not in problem.why:
        problem = dataclasses.replace(problem, why=f"{problem.why.rstrip('.')}. Then {why}")
    return dataclasses.replace(problem, spent=True, remedy=f"{problem.remedy} The next run needs a new worker.".strip())
