"""One run on the worker thread: from Start to RunEnded, which is always sent."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

import torch

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.problems import describe
from explorer.engine.session import Session
from explorer.messages import (
    Command,
    Event,
    Problem,
    Progress,
    Reconfigure,
    Refused,
    RunEnded,
    Samples,
    SegmentStarted,
    Shutdown,
    Start,
    Text,
)
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample, Segment

EMIT_EVERY_S = 0.05
"""Samples travel in batches: one event a step would cost the window more than the step costs the device."""

Outcome = Literal["completed", "stopped", "failed"]


class LiveRun:
    """``serve`` does the run. Commands are read between steps, the stop flag before each."""

    def __init__(
        self,
        start: Start,
        flag: threading.Event,
        commands: queue.SimpleQueue[Command],
        emit: Callable[[Event], None],
        here: Environment,
    ) -> None:
        self._id = start.run_id
        self._start = start
        self._flag = flag
        self._commands = commands
        self._emit = emit
        self._here = here
        self._later: list[Start] = []
        self._held: list[Sample] = []
        self._emitted_at_s = 0.0
        self._segments = 0

    def serve(self) -> list[Start]:
        """Do the run and return the Starts that came meanwhile."""
        outcome: Outcome = "failed"
        problem: Problem | None = None
        config = self._start.config
        try:
            try:
                device = self._here.device(config.device)
            except ValueError as error:
                raise BadRequest(what="No such device", why=str(error)) from error
            outcome = self._run_on(device)
        except Cancelled:
            outcome = "stopped"
        except Exception as error:  # the worker's border: whatever happened becomes words
            problem = describe(error, config)
        # The error's frames are gone now, and with them the last references to its tensors.
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            _release_cache()
        self._send_held()
        self._emit(RunEnded(run_id=self._id, outcome=outcome, problem=problem))
        return self._later

    def _run_on(self, device: DeviceInfo) -> Outcome:
        with Session(
            self._start.config,
            device,
            download=self._start.download,
            report=self._report,
            cancelled=self._flag.is_set,
        ) as session:
            session.begin()
            self._announce(session, ())
            try:
                return self._steps(session)
            finally:
                self._send_held()

    def _steps(self, session: Session) -> Outcome:
        steps = self._start.steps
        while True:
            if self._flag.is_set():
                self._take(session, all_of_them=True)
                return "stopped"
            change = self._latest_change()
            if change is not None:
                self._reconfigure(session, change)
            if session.loop.finished or (steps is not None and session.loop.next_step >= steps):
                self._take(session, all_of_them=True)
                return "completed"
            session.loop.step()
            self._take(session)

    def _latest_change(self) -> RunConfig | None:
        """The newest setting asked for since the last step; those between were never run and need not be."""
        latest = None
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return latest
            match command:
                case Reconfigure():
                    latest = command.config if command.run_id == self._id else latest
                case Start():
                    self._later.append(command)
                case Shutdown():
                    self._commands.put(command)  # the flag is set; the runner takes this when the run has ended
                    return latest
                case _:
                    raise AssertionError(f"{command} is taken by post")

    def _reconfigure(self, session: Session, wanted: RunConfig) -> None:
        before = session.config
        try:
            config = session.accept(wanted)
        except BadRequest as error:
            self._emit(Refused(run_id=self._id, config=before, problem=describe(error, wanted)))
            return
        if config == before:
            return
        self._take(session, all_of_them=True)
        self._send_held()
        try:
            session.change_to(config)
        except ValueError as error:
            session.change_to(before)
            self._announce(session, ())
            self._emit(Refused(run_id=self._id, config=before, problem=describe(error, wanted)))
            return
        self._announce(session, registry.changes(before, config))

    def _announce(self, session: Session, changes: tuple[str, ...]) -> None:
        segment = Segment(
            index=self._segments,
            first_step=session.loop.next_step,
            changes=changes,
            started_at=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        )
        self._segments += 1
        self._emit(SegmentStarted(run_id=self._id, config=session.config, segment=segment))
        self._report("first step: loading kernels", None, None, "")

    def _take(self, session: Session, *, all_of_them: bool = False) -> None:
        self._held += session.loop.collect(all_of_them=all_of_them)
        now_s = time.monotonic()
        if now_s - self._emitted_at_s >= EMIT_EVERY_S or all_of_them:
            self._emitted_at_s = now_s
            self._send_held()
            text = session.loop.take_text()
            if text:
                self._emit(Text(run_id=self._id, text=text))

    def _send_held(self) -> None:
        if self._held:
            self._emit(Samples(run_id=self._id, samples=tuple(self._held)))
            self._held.clear()

    def _report(self, activity: str, done: float | None, total: float | None, unit: str) -> None:
        self._emit(Progress(run_id=self._id, activity=activity, done=done, total=total, unit=unit))


def _release_cache() -> None:
    # A poisoned context answers every call with its first error, which has been described already.
    with contextlib.suppress(RuntimeError):
        torch.cuda.empty_cache()
