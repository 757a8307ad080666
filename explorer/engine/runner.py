"""The worker: one thread that alone touches torch. A command queue in, events out, a fresh stop flag a run."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable
from typing import Any, assert_never

from explorer.messages import (
    Bench,
    Command,
    Compare,
    EmptyCache,
    Event,
    Export,
    Problem,
    ProfileSteps,
    Reconfigure,
    Save,
    Saved,
    Shutdown,
    Start,
    Stop,
    SummarizeMemory,
    Verify,
    Work,
    WorkerReady,
)

RUN_IS_OVER = Problem(what="Not saved", why="its run has ended meanwhile", remedy="Save while a model trains.")


class Runner:
    """Serves commands until Shutdown. ``post`` may be called from any thread, ``serve`` from one.

    ``emit`` is called on the serving thread and must return at once.
    """

    def __init__(self, emit: Callable[[Event], None], *, owns_process: bool = False) -> None:
        """``owns_process``: nothing else lives in this process."""
        self._emit = emit
        self._owns_process = owns_process
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._flags: dict[int, threading.Event] = {}
        self._lock = threading.Lock()
        self._closing = False

    def post(self, command: Command) -> None:
        """Take a command. Stop and Shutdown work at once, also on a run that has not begun yet."""
        match command:
            case Stop():
                self._flag(command.run_id).set()
            case Shutdown():
                with self._lock:
                    self._closing = True
                    for flag in self._flags.values():
                        flag.set()
                self._commands.put(command)
            case Start() | Compare() | Verify() | Bench() | ProfileSteps() | Export():
                self._commands.put(command)
            case Reconfigure() | Save() | SummarizeMemory() | EmptyCache():
                self._commands.put(command)
            case _:
                assert_never(command)

    def _flag(self, run_id: int) -> threading.Event:
        """The stop flag of one run, and of no other: clearing a shared one would lose an early Stop."""
        with self._lock:
            flag = self._flags.setdefault(run_id, threading.Event())
            if self._closing:
                flag.set()
            return flag

    def _forget(self, run_id: int) -> None:
        with self._lock:
            del self._flags[run_id]

    def serve(self) -> None:
        """Import torch, say what this machine is, then run what is asked for, one run at a time."""
        if self._owns_process:
            # What is imported stays. Looking for garbage in it took 0.8 of the imports' 4.0 s (two cores, torch 2.13).
            gc.disable()
        from explorer.engine.device import environment
        from explorer.engine.lab import Lab
        from explorer.engine.live_comparison import LiveComparison
        from explorer.engine.live_run import LiveRun
        from explorer.engine.memory_at_hand import answer
        from explorer.engine.model_export import ModelExport
        from explorer.engine.profiling import Profiling
        from explorer.engine.task import Task
        from explorer.engine.verification import Verification

        here = environment()
        if self._owns_process:
            # What the imports made stays anyway: 400,000 objects that each collection would go through, 150 ms a time,
            # in the midst of steps and twice at the end of a run, when Stop waits for it.
            gc.freeze()
            gc.enable()
        self._emit(WorkerReady(environment=here))
        waiting: list[Work] = []
        while True:
            command = waiting.pop(0) if waiting else self._commands.get()
            match command:
                case Start() | Compare() | Verify() | Bench() | ProfileSteps() | Export():
                    run_id = command.run_ids[0] if isinstance(command, Compare) else command.run_id
                    given = (self._flag(run_id), self._commands, self._emit, here)
                    task: Task[Any]
                    match command:
                        case Start():
                            task = LiveRun(command, *given, flag_of=self._flag)
                        case Compare():
                            task = LiveComparison(command, *given)
                        case Verify():
                            task = Verification(command, *given)
                        case Bench():
                            task = Lab(command, *given)
                        case ProfileSteps():
                            task = Profiling(command, *given)
                        case Export():
                            task = ModelExport(command, *given)
                        case _:
                            assert_never(command)
                    waiting += task.serve()
                    self._forget(run_id)
                case Reconfigure():
                    pass  # its run has ended meanwhile
                case Save():
                    self._emit(Saved(run_id=command.run_id, folder=command.folder, problem=RUN_IS_OVER))
                case SummarizeMemory() | EmptyCache():
                    self._emit(answer(command))
                case Shutdown():
                    return
                case Stop():
                    raise AssertionError("Stop is taken by post")
                case _:
                    assert_never(command)
