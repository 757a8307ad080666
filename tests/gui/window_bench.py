"""A window whose worker is a script: what stands beyond the window's border, speaking real messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from explorer.config import RunConfig
from explorer.gui import bridge
from explorer.gui.app import create
from explorer.gui.main_window import MainWindow
from explorer.messages import Command, Event, RunEnded, Samples, SegmentStarted, Start, WorkerReady
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample, Segment

GPU = DeviceInfo(
    id="cuda:0",
    kind="cuda",
    name="Big GPU",
    total_memory_bytes=80 * 2**30,
    capability=(9, 0),
    bf16=True,
    driver="580.1",
)
CPU = DeviceInfo(
    id="cpu",
    kind="cpu",
    name="Small CPU",
    total_memory_bytes=16 * 2**30,
    bf16=True,
    triton_problem="Triton compiles for GPUs only",
)


def environment(*devices: DeviceInfo) -> Environment:
    return Environment(
        devices=devices, platform="Linux", python="3.11.7", explorer="0.1.0", torch="2.13.0", triton="3.7.1"
    )


class ScriptedWorker:
    """Stands where the worker's process stands: takes the window's commands, says what the test has it say."""

    def __init__(self, here: Environment | None) -> None:
        self.commands: list[Command] = []
        self.alive = True
        self.resumed: list[Event] = []
        self._events: list[Event] = [] if here is None else [WorkerReady(environment=here)]

    def say(self, *events: Event) -> None:
        self._events += events

    def send(self, command: Command) -> None:
        assert self.alive
        self.commands.append(command)

    def drain(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def close(self, timeout_s: float = 1.0) -> None:
        self.alive = False

    def kill(self) -> None:
        self.alive = False

    def interrupt(self) -> list[Event]:
        """What resuming comes to is said by the test, beforehand."""
        told, self.resumed = self.resumed, []
        return told


class Bench:
    """A window whose workers are scripted, and the short ways to drive it."""

    def __init__(self, qtbot: QtBot, patch: pytest.MonkeyPatch) -> None:
        self.qtbot = qtbot
        self.here: Environment | None = environment(CPU)
        self.workers: list[ScriptedWorker] = []
        self.window: MainWindow
        patch.setattr(bridge, "open_worker", self._open_worker)
        patch.setattr(bridge, "DRAIN_EVERY_MS", 10)  # what a script says need not wait as long as what a GPU says

    def _open_worker(self, *, in_process: bool) -> ScriptedWorker:
        self.workers.append(ScriptedWorker(self.here))
        return self.workers[-1]

    @property
    def worker(self) -> ScriptedWorker:
        return self.workers[-1]

    @property
    def config(self) -> RunConfig:
        return self.window.intent.config

    def open(self, *argv: str) -> MainWindow:
        """Open the window; its worker says that it is ready when it has an environment to tell of."""
        _, self.window = create(list(argv))
        self.qtbot.addWidget(self.window)
        self.until(lambda: bool(self.workers))
        if self.here is not None:
            self.until(lambda: self.window.bridge.state == "ready")
        return self.window

    def find(self, kind: type, name: str) -> Any:
        """The one widget or action of that objectName."""
        found = self.window.findChildren(kind, name)
        assert len(found) == 1, f"{len(found)} are called {name}"
        return found[0]

    def choose(self, name: str, data: object) -> None:
        """Make the item that carries ``data`` current in the combo of that name."""
        combo = self.find(QComboBox, name)
        index = combo.findData(data)
        assert index >= 0, f"{name} has no {data}"
        combo.setCurrentIndex(index)

    def start(self) -> Start:
        """Press F5 and return the command that came of it, the first segment begun."""
        self.window.control.start()
        self.until(lambda: any(isinstance(c, Start) for c in self.worker.commands))
        start = next(c for c in reversed(self.worker.commands) if isinstance(c, Start))
        segment = Segment(index=0, first_step=0, changes=(), started_at="2026-01-01T00:00:00+00:00")
        self.say(SegmentStarted(run_id=start.run_id, config=start.config, segment=segment))
        return start

    def say(self, *events: Event) -> None:
        """Have the worker say this, and wait until the window has taken it."""
        self.worker.say(*events)
        self.until(lambda: not self.worker._events)
        QCoreApplication.processEvents()

    def end(self, start: Start) -> None:
        self.say(RunEnded(run_id=start.run_id, outcome="stopped"))

    def until(self, fact: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(fact, timeout=5000)


def steps(run_id: int, first: int, count: int, **fields: Any) -> Samples:
    """``count`` steady steps from ``first`` on, 100 tokens in 50 ms each."""
    return Samples(
        run_id=run_id,
        samples=tuple(
            Sample(
                step=step, segment=0, phase="steady", time_s=step * 0.05, tokens=100, step_ms=50.0, loss=9.0, **fields
            )
            for step in range(first, first + count)
        ),
    )
