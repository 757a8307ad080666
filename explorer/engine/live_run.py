"""One run, from Start to RunEnded: settings may change between its steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest
from explorer.engine.problems import describe
from explorer.engine.session import Session
from explorer.engine.task import Outcome, Task
from explorer.messages import Bench, Command, Compare, Event, Reconfigure, Refused, Shutdown, Start, Verify
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo, Environment


class LiveRun(Task):
    """Steps until they are enough or Stop comes; Reconfigure is read between them."""

    def __init__(
        self,
        start: Start,
        flag: threading.Event,
        commands: queue.SimpleQueue[Command],
        emit: Callable[[Event], None],
        here: Environment,
    ) -> None:
        super().__init__(start, flag, commands, emit, here)
        self._id = start.run_id
        self._steps_wanted = start.steps
        self._segments = 0

    def _run_on(self, device: DeviceInfo) -> Outcome:
        self._look_at(device)
        with self._open(self._config, device) as session:
            self._begin_segment(session, ())
            try:
                return self._steps(session)
            finally:
                self._send_held()

    def _steps(self, session: Session) -> Outcome:
        steps = self._steps_wanted
        while True:
            if self._flag.is_set():
                self._take(self._id, session, all_of_them=True, at_the_end=True)
                return "stopped"
            change = self._latest_change()
            if change is not None:
                self._reconfigure(session, change)
            if session.loop.finished or (steps is not None and session.loop.next_step >= steps):
                self._take(self._id, session, all_of_them=True, at_the_end=True)
                return "completed"
            session.loop.step()
            self._take(self._id, session)

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
                case Start() | Compare() | Verify() | Bench():
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
        self._take(self._id, session, all_of_them=True)
        self._send_held()
        self._before, self._config = before, config
        session.change_to(config)
        try:
            self._begin_segment(session, registry.changes(before, config))
        except ValueError as error:
            session.change_to(before)
            self._begin_segment(session, ())
            self._emit(Refused(run_id=self._id, config=before, problem=describe(error, wanted)))

    def _begin_segment(self, session: Session, changes: tuple[str, ...]) -> None:
        session.begin_segment(self._segments)
        self._announce(self._id, session, changes, index=self._segments)
        self._segments += 1
