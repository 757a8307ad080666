"""A worker that outlives what may cost its process: the run goes on from before it, in another process if need be."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.messages import (
    Command,
    Event,
    Note,
    Parked,
    Problem,
    ProfileSteps,
    Refused,
    RunEnded,
    Samples,
    Save,
    Saved,
    SegmentStarted,
    Start,
    Stop,
    WorkerLost,
    WorkerReady,
)
from explorer.results.scratch import Scratch

if TYPE_CHECKING:
    from explorer.engine.isolation import Worker

SAFE_STEPS = 5
"""Steps after which nothing is compiled or recorded any more: a recording comes after three, and must be replayed."""
ENDED_BY_HAND = "it was ended by hand"


class ResumingWorker:
    """``make``'s worker. A run that has parked its state is not lost with what came next, by an error or by death.

    It goes on with the configuration of before; a Note, which is kept, and Refused say why.
    """

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._worker = make()
        self._start: Start | None = None
        """The training run that is going and was not asked to stop."""
        self._asked: list[Save | ProfileSteps | Stop] = []
        """What was asked of it and not answered yet, for a process that takes the place of this one."""
        self._parked: Parked | None = None
        """While what came next may still fail."""
        self._replaced = False
        """Whether a worker is not the first, which alone is announced."""
        self._segments = 0
        """How many the run has begun."""
        self._scratch: Scratch | None = None

    @property
    def alive(self) -> bool:
        return self._worker.alive

    @property
    def process_id(self) -> int:
        return self._worker.process_id

    def send(self, command: Command) -> None:
        match command:
            case Start() if command.config.workload == "train":
                command = dataclasses.replace(command, park_to=self._place())
                self._start, self._parked, self._asked = command, None, []
            case Stop() if self._start is not None and command.run_id == self._start.run_id:
                self._forget()  # however it ends, it is not to go on
            case Save() | ProfileSteps() | Stop() if self._start is not None:
                self._asked.append(command)
            case _:
                pass
        self._worker.send(command)

    def drain(self) -> list[Event]:
        given: list[Event] = []
        for event in self._worker.drain():
            given += self._seen(event)
        return given

    def _seen(self, event: Event) -> list[Event]:
        """What to tell of ``event``."""
        parked = self._parked
        match event:
            case WorkerReady() if self._replaced:
                return []
            case Parked() if self._start is not None:
                self._discard_state()
                self._parked = event
            case SegmentStarted():
                self._segments = event.segment.index + 1
            case Samples() if parked is not None and self._is_past(parked, event.samples[-1].step):
                self._discard_state()
            case RunEnded() if self._start is not None and event.run_id == self._start.run_id:
                problem = event.problem
                # A process that is spent cannot serve again, and a thread's process cannot be ended.
                if parked is not None and problem is not None and (not problem.spent or self._renew()):
                    return self._resume(
                        parked, problem.what, problem.why, anew=problem.spent, blamed=not problem.outside
                    )
                self._forget()
            case RunEnded():  # of what the run paused for
                self._asked = [one for one in self._asked if one.run_id != event.run_id]
            case Saved():
                self._asked = [one for one in self._asked if not isinstance(one, Save) or one.folder != event.folder]
            case WorkerLost() if parked is not None and event.exit_code is not None:
                last = event.last_words.splitlines()[-1:] or ["it left no message"]
                self._renew()
                what = f"The worker ended by itself{event.how}"
                return self._resume(parked, what, last[0], anew=True, blamed=not event.from_outside)
            case _:
                pass
        return [event]

    def interrupt(self) -> list[Event]:
        """End the process in the midst of what may cost it, and go on from before; returns what to tell of it.

        Nothing happens, and nothing is returned, where no run has parked its state for what is being done.
        """
        parked = self._parked
        if parked is None or not self._renew():
            return []
        return self._resume(parked, "The worker was ended", ENDED_BY_HAND, anew=True, blamed=True)

    def _place(self) -> str:
        """The folder to park in; empty, so that nothing is parked, where none can be made."""
        if self._scratch is None:
            with contextlib.suppress(OSError):
                self._scratch = Scratch()
        return "" if self._scratch is None else str(self._scratch.path)

    def _is_past(self, parked: Parked, step: int) -> bool:
        """Whether what fails after ``step`` has nothing to do with what the run was parked for."""
        assert self._start is not None
        wanted = self._start.steps
        return step >= parked.step + SAFE_STEPS or (wanted is not None and step + 1 >= wanted)

    def _renew(self) -> bool:
        """Put another process in the place of this one; False where that cannot be: a thread cannot be ended."""
        try:
            self._worker.kill()
        except RuntimeError:
            return False
        self._worker, self._replaced = self._make(), True
        return True

    def _resume(self, parked: Parked, what: str, why: str, *, anew: bool, blamed: bool) -> list[Event]:
        """``anew``: in another process, which has heard of nothing that this one did not answer.

        ``blamed``: whether it may come of the change; else something from outside of the run has ended it.
        """
        assert self._start is not None
        self._parked = None
        # What came after the change may have begun segments as well: no number is given twice.
        parked = dataclasses.replace(parked, segments=max(parked.segments, self._segments))
        self._worker.send(dataclasses.replace(self._start, config=parked.config, parked=parked))
        for command in self._asked if anew else ():
            self._worker.send(command)
        remedy = f"The run went on from step {parked.step}, as it was before."
        if not blamed:
            remedy = " ".join((remedy, "The change is not to blame: ask for it again."))
        problem = Problem(what=f"At the change {', '.join(parked.changes)}: {what}", why=why, remedy=remedy)
        return [
            Note(run_id=parked.run_id, text=str(problem)),
            Refused(run_id=parked.run_id, config=parked.config, problem=problem, resumed=True),
        ]

    def close(self, timeout_s: float = 1.0) -> None:
        self._worker.close(timeout_s)
        self._discard()

    def kill(self) -> None:
        self._worker.kill()
        self._forget()
        self._discard()

    def _forget(self) -> None:
        self._discard_state()
        self._start = None
        self._asked = []

    def _discard_state(self) -> None:
        """Give the disk back what it holds of a state that nothing will go on from: of a large model many GB."""
        if self._parked is not None:
            Path(self._parked.path).unlink(missing_ok=True)
            self._parked = None

    def _discard(self) -> None:
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None
