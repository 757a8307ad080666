"""Profiles in the window: between runs, or while a run pauses, and what is kept of the newest."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from explorer.config import RunConfig
from explorer.experiments.command_line import nsys_line
from explorer.experiments.look_closer import look_closer
from explorer.gui import hints
from explorer.gui.bridge import Bridge
from explorer.gui.exporting import Exporter
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import problem_words
from explorer.gui.profile_window import ProfileWindow
from explorer.messages import Problem, ProfileSteps, Progress, RunEnded, StepsProfiled
from explorer.optimizations.registry import problems
from explorer.results.environment import DeviceInfo
from explorer.results.scratch import Scratch
from explorer.results.step_profile import StepProfile, profile_rows


class ProfileControl(QObject):
    """Connects window, intent and bridge. The files of the newest profile lie in a folder of its own until the end."""

    def __init__(
        self,
        intent: Intent,
        bridge: Bridge,
        exporter: Exporter,
        parent: QWidget,
        *,
        device: Callable[[], DeviceInfo | None],
    ) -> None:
        """``device``: what the settings of the moment would run on; None: not known yet."""
        super().__init__(parent)
        self._intent = intent
        self._bridge = bridge
        self._exporter = exporter
        self._device = device
        self._asked: ProfileSteps | None = None
        self._conducted = False
        """Whether it was asked for as an experiment; else a run pauses for it."""
        self._found: StepProfile | Problem | None = None
        self._profile: StepProfile | None = None
        self._folder: Scratch | None = None
        self._next_folder: Scratch | None = None
        self.window = ProfileWindow(parent)
        self.window.start_wanted.connect(self.start)
        self.window.cancel_wanted.connect(self.cancel)
        self.window.copy_wanted.connect(lambda: QGuiApplication.clipboard().setText(self.window.nsys.text()))
        self.window.trace_wanted.connect(self._save_trace)
        self.window.memory_wanted.connect(self._save_memory)
        self.window.table_wanted.connect(self._export)
        intent.changed.connect(self._show)
        bridge.state_changed.connect(self._state)
        bridge.progress.connect(self._progress)
        bridge.steps_profiled.connect(self._take)
        bridge.pause_ended.connect(self._pause_ended)
        bridge.experiment_started.connect(self._show)
        bridge.experiment_ended.connect(self._experiment_ended)

    def open_and_start(self) -> None:
        """Show the window, and profile if that can be done now."""
        self._show()
        self.window.show()
        self.window.raise_()
        self.window.activateWindow()
        if self._asked is None and not self.obstacle():
            self.start()

    def obstacle(self) -> str:
        """Why no profile can begin now; empty where one can."""
        if self._bridge.state == "stopping":
            return tr("The run is stopping: wait for its end.")
        if self._bridge.state in ("absent", "starting") and self._bridge.running is not None:
            return tr("The worker has not started yet.")
        if self._bridge.experimenting:
            return tr("A measurement is going that must not be disturbed: wait for its end, or stop it (Shift+F5).")
        device = self._device()
        found = problems(self._config(), device) if device is not None else {}
        return hints.reasons(found) if found else ""

    def start(self) -> None:
        """Profile what runs, or what would."""
        device = self._device()
        if self._asked is not None or self.obstacle():
            return
        try:
            self._next_folder = Scratch()
        except OSError as error:
            self.window.show_progress(problem_words(Problem(what=tr("Not profiled"), why=str(error))))
            return
        self._found = None
        self._asked = command = ProfileSteps(
            run_id=self._bridge.reserve_id(),
            config=self._config(),
            steps=self.window.steps.value(),
            folder=str(self._next_folder.path),
            memory=device is not None and device.kind == "cuda",
        )
        self._conducted = self._bridge.running is None
        if self._conducted:
            self.window.show_progress(tr("Starting a process to profile in…"))
            self._bridge.conduct(look_closer(command, asked_to_stop=self._bridge.asked_to_stop))
        else:
            self.window.show_progress(tr("The run pauses at its next step…"))
            self._bridge.pause_for(command)
        self._show()

    def cancel(self) -> None:
        """Call the profile off; a run that pauses for it goes on."""
        if self._asked is None:
            return
        if self._conducted:
            self._bridge.stop()
        else:
            self._bridge.end_pause(self._asked.run_id)

    def reword(self) -> None:
        """Show all in the language of the moment."""
        self.window.reword()
        self._show()

    def close(self) -> None:
        """Remove the files of the profiles."""
        self.window.close()
        for folder in (self._folder, self._next_folder):
            if folder is not None:
                folder.remove()

    def _config(self) -> RunConfig:
        return self._bridge.running or self._intent.config

    def _show(self, *_: object) -> None:
        self.window.show_state(obstacle=self.obstacle(), profiling=self._asked is not None)
        self.window.show_nsys(nsys_line(self._config()))

    # ---- from the person

    def _save_trace(self) -> None:
        if self._profile is not None:
            self._exporter.save_trace(self._profile.trace_file)

    def _save_memory(self) -> None:
        if self._profile is not None:
            self._exporter.save_memory_snapshot(self._profile.memory_file)

    def _export(self) -> None:
        if self._profile is not None:
            self._exporter.export_profile(profile_rows(self._profile))

    # ---- from the worker

    def _progress(self, event: Progress) -> None:
        if self._asked is not None and event.run_id == self._asked.run_id:
            self.window.show_progress(f"{from_below(event.activity)}…")

    def _take(self, event: StepsProfiled) -> None:
        if self._asked is not None and event.run_id == self._asked.run_id:
            self._found = event.found

    def _pause_ended(self, event: RunEnded) -> None:
        if self._asked is not None and event.run_id == self._asked.run_id and not self._conducted:
            self._end(event.problem or self._found)

    def _experiment_ended(self, outcome: object) -> None:
        if self._asked is not None and self._conducted:
            self._end(outcome)
        self._show()

    def _state(self, state: str) -> None:
        if (
            state in ("absent", "starting") and self._asked is not None and not self._conducted
        ):  # another never heard of it
            self._end(Problem(what=tr("Not profiled"), why=tr("the worker has ended")))
        self._show()

    def _end(self, outcome: object) -> None:
        self._asked = None
        match outcome:
            case StepProfile():
                old, self._folder, self._next_folder = self._folder, self._next_folder, None
                if old is not None:
                    old.remove()
                self._profile = outcome
                self.window.show_progress("")
                self.window.show_profile(outcome)
            case Problem():
                self.window.show_progress(problem_words(outcome))
            case _:
                self.window.show_progress(tr("Cancelled."))
        if self._next_folder is not None:
            self._next_folder.remove()
            self._next_folder = None
        self._show()
