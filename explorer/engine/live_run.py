"""One run, from Start to RunEnded: settings may change between its steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch

from explorer.config import RunConfig
from explorer.engine import saving
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.memory_at_hand import answer
from explorer.engine.parts import part, parts_for_nsight
from explorer.engine.problems import describe
from explorer.engine.profiling import profiled
from explorer.engine.runner import RUN_IS_OVER
from explorer.engine.session import Session
from explorer.engine.step_trace import STEP
from explorer.engine.task import Outcome, Task
from explorer.messages import (
    Aside,
    Bench,
    Command,
    Compare,
    EmptyCache,
    Event,
    Export,
    Parked,
    Problem,
    ProfileSteps,
    Progress,
    Reconfigure,
    Refused,
    RunEnded,
    Save,
    Saved,
    Shutdown,
    Start,
    SummarizeMemory,
    Text,
    Verify,
)
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import RESUMED


class LiveRun(Task[Start]):
    """Steps until they are enough or Stop comes; Reconfigure, Save and ProfileSteps are read between them."""

    def __init__(
        self,
        start: Start,
        flag: threading.Event,
        commands: queue.SimpleQueue[Command],
        emit: Callable[[Event], None],
        here: Environment,
        *,
        flag_of: Callable[[int], threading.Event] = lambda run_id: threading.Event(),
    ) -> None:
        """``flag_of``: the stop flag of a profile that the run pauses for, by its run id; without, its end is the
        run's alone.
        """
        super().__init__(start, flag, commands, emit, here)
        self._id = start.run_id
        self._steps_wanted = start.steps
        self._park_to = start.park_to
        self._parked = start.parked
        self._segments = 0 if start.parked is None else start.parked.segments
        self._save_to = start.save_to
        self._saves: list[str] = []
        """Folders that the model is to be written to at the next step boundary."""
        self._asides: list[Aside] = []
        self._summarize = start.summarize_memory
        self._nvtx = start.nvtx
        self._flag_of = flag_of
        self._profiles: list[ProfileSteps] = []

    def _run_on(self, device: DeviceInfo) -> Outcome:
        if self._save_to:
            saving.check(self._config, Path(self._save_to))
        if self._nvtx and device.kind != "cuda":
            raise BadRequest(
                what="No NVTX ranges", why=f"Nsight Systems sees a CUDA device at work, and {device.name} is none"
            )
        self._look_at(device)
        with self._open(self._config, device) as session, parts_for_nsight() if self._nvtx else nullcontext():
            if self._parked is not None:
                session.unpark(Path(self._parked.path))
            self._begin_segment(session, () if self._parked is None else (RESUMED,))
            try:
                outcome = self._steps(session)
                if self._save_to:
                    self._save(session, self._save_to)
                if self._summarize:
                    self._emit(answer(SummarizeMemory()))
                return outcome
            finally:
                self._send_held()
                for folder in self._saves:  # it came with a change that failed
                    self._emit(Saved(run_id=self._id, folder=folder, problem=RUN_IS_OVER))
                for command in self._asides:  # they came with the end
                    self._commands.put(command)
                self._later += self._profiles  # that came with the end

    def _steps(self, session: Session) -> Outcome:
        steps = self._steps_wanted
        while True:
            if self._flag.is_set():
                self._take(self._id, session, all_of_them=True, at_the_end=True)
                return "stopped"
            change = self._latest_change()
            if change is not None:
                self._reconfigure(session, change)
            if self._saves:
                self._save_all(session)
            if self._asides:
                self._answer_all(session)
            while self._profiles:
                self._profile(session, self._profiles.pop(0))
            if session.loop.finished or (steps is not None and session.loop.next_step >= steps):
                self._take(self._id, session, all_of_them=True, at_the_end=True)
                return "completed"
            with part(STEP):
                session.loop.step()
            self._take(self._id, session)
            every = session.config.sample_every
            if every and session.config.workload == "train" and session.loop.next_step % every == 0:
                self._sample(session)

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
                case Save() if command.run_id == self._id:
                    self._saves.append(command.folder)
                case Save():
                    self._emit(Saved(run_id=command.run_id, folder=command.folder, problem=RUN_IS_OVER))
                case SummarizeMemory() | EmptyCache():
                    self._asides.append(command)
                case ProfileSteps():
                    self._profiles.append(command)
                case Start() | Compare() | Verify() | Bench() | Export():
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
        if self._park_to and registry.may_cost_process(config):
            self._park(session, before, config)
        try:
            self._begin_segment(session, registry.changes(before, config))
        except ValueError as error:
            session.change_to(before)
            self._begin_segment(session, ())
            self._emit(Refused(run_id=self._id, config=before, problem=describe(error, wanted)))

    def _park(self, session: Session, before: RunConfig, config: RunConfig) -> None:
        """Write the state to a file, from which another process can go on with ``before``."""
        self._report("writing the run's state to a file", None, None, "")
        # A name of its own: the file from before is taken away by whoever reads of this one.
        path = Path(self._park_to, f"{self._segments}.safetensors")
        try:
            session.park(path)
        except RuntimeError as error:
            self._note(f"the run's state could not be written aside: {error}", self._id)
            return
        self._emit(
            Parked(
                run_id=self._id,
                path=str(path),
                config=before,
                changes=registry.changes(before, config),
                step=session.loop.next_step,
                segments=self._segments + 1,
            )
        )

    def _sample(self, session: Session) -> None:
        """Have the model in training write a text, outside of what is timed."""
        self._take(self._id, session, all_of_them=True)
        step = session.loop.next_step
        self._report("writing a sample", None, None, "")
        text = session.sample_text(asked_to_stop=self._flag.is_set)
        self._emit(Text(run_id=self._id, text=session.config.prompt + text, step=step))

    def _profile(self, session: Session, command: ProfileSteps) -> None:
        """Pause while a process of its own profiles; weights, optimizer and batches stay as they are."""
        self._take(self._id, session, all_of_them=True)
        problem: Problem | None = None
        stopped, run_id = self._flag_of(command.run_id), command.run_id

        def report(activity: str) -> None:
            self._emit(Progress(run_id=run_id, activity=activity))

        try:
            if session.run.device.type == "cuda":
                torch.cuda.empty_cache()  # the other process needs as much again
            self._emit(profiled(command, report=report, cancelled=lambda: stopped.is_set() or self._flag.is_set()))
            outcome: Outcome = "completed"
        except Cancelled:
            outcome = "stopped"
        except (BadRequest, RuntimeError, OSError) as error:
            outcome, problem = "failed", describe(error, command.config)
        self._emit(RunEnded(run_id=run_id, outcome=outcome, problem=problem))
        session.loop.go_on()

    def _save_all(self, session: Session) -> None:
        """Write the model wherever it was asked for, outside of what is timed; the run goes on, also where it fails."""
        self._take(self._id, session, all_of_them=True)
        for folder in self._saves:
            try:
                saving.check(session.config, Path(folder))
                self._save(session, folder)
            except (BadRequest, RuntimeError) as error:
                self._emit(Saved(run_id=self._id, folder=folder, problem=describe(error, session.config)))
        self._saves.clear()

    def _answer_all(self, session: Session) -> None:
        """Outside of what is timed: the allocator waits for the device before it gives anything back."""
        self._take(self._id, session, all_of_them=True)
        for command in self._asides:
            self._emit(answer(command))
        self._asides.clear()
        session.loop.go_on()

    def _save(self, session: Session, folder: str) -> None:
        self._report("saving the model", None, None, "")
        session.save_model(Path(folder))
        self._emit(Saved(run_id=self._id, folder=folder))

    def _begin_segment(self, session: Session, changes: tuple[str, ...]) -> None:
        session.begin_segment(self._segments)
        self._announce(self._id, session, changes, index=self._segments)
        self._segments += 1
