"""What happens when: settings to the worker, the worker's words to the panels, and hints to the person."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from explorer.config import RunConfig
from explorer.gui import hints
from explorer.gui.bridge import Bridge
from explorer.gui.intent import Intent, changed_fields
from explorer.gui.language import from_below, later, tr
from explorer.gui.message_bar import MessageBar, problem_words
from explorer.gui.panels import Panels
from explorer.gui.run_bar import LOCKED_IN_RUN
from explorer.gui.settings import default_config
from explorer.messages import Note, Parked, Problem, Progress, Refused, RunEnded, Saved, SegmentStarted, Text
from explorer.models import MODELS
from explorer.optimizations.registry import problems
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample

TABLE_EVERY_MS = 250
PAUSED = later("pause: profile")
"""Kept with the run as it is here, and said in the language of the moment."""
# Beside what the bar locks: a prompt and a first loss scale are used once, when a run begins.
FIXED_IN_RUN = frozenset(LOCKED_IN_RUN) | {"prompt", "more_prompts", "init_scale", "sample_every"}
# A new segment, which compiles anew, is too much for a training run whose samples alone would change.
FIXED_IN_TRAINING = FIXED_IN_RUN | {
    *("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "stop"),
}


class RunControl(QObject):
    """Connects intent, bridge and panels. ``state_changed`` says that a run began or ended."""

    state_changed = Signal()

    def __init__(
        self, intent: Intent, bridge: Bridge, panels: Panels, messages: MessageBar, *, untouched: bool
    ) -> None:
        """``untouched``: the configuration is a default made before the devices were known."""
        super().__init__(messages)
        self._intent = intent
        self._bridge = bridge
        self._panels = panels
        self._messages = messages
        self._untouched = untouched
        self._environment: Environment | None = None
        self._taught = False
        self._run_id = 0
        self._segments_of_run = 0
        self._measured = False
        self._notes: list[str] = []
        self._ran: RunConfig | None = None
        self._peak_bytes = -1
        self._stall_words = ""
        self._paused = False
        """Whether the run pauses for a profile."""
        self._parked: Parked | None = None
        """While it is shown that the run's state was written aside."""
        self._table = QTimer(self)
        self._table.setInterval(TABLE_EVERY_MS)
        self._table.timeout.connect(panels.runs.refresh)

        intent.changed.connect(self._changed)
        panels.run_bar.edited.connect(self._edit)
        panels.run_bar.start_wanted.connect(self.start)
        panels.run_bar.stop_wanted.connect(self.stop)
        panels.toggles.edited.connect(intent.replace)
        panels.toggles.training.edited.connect(self._edit)
        panels.text.settings_changed.connect(self._edit)
        bridge.worker_ready.connect(self._ready)
        bridge.state_changed.connect(self._state)
        bridge.run_started.connect(self._started)
        bridge.progress.connect(self._progress)
        bridge.pause_ended.connect(self._go_on)
        bridge.noted.connect(self._noted)
        bridge.segment_started.connect(self._segment)
        bridge.samples.connect(self._samples)
        bridge.text.connect(self._text)
        bridge.saved.connect(self._saved)
        bridge.parked.connect(self._show_parked)
        bridge.refused.connect(self._refused)
        bridge.run_ended.connect(self._ended)
        bridge.experiment_started.connect(self._notes.clear)
        bridge.experiment_started.connect(self._redraw)
        bridge.experiment_ended.connect(self._redraw)
        bridge.worker_lost.connect(self._lost)
        bridge.stop_overdue.connect(self._overdue)
        bridge.stalled.connect(self._stalled)
        self._redraw()
        messages.show_message(hints.first_step(intent.config))

    def start(self) -> None:
        """Begin a run of what is wanted now, or say why it cannot."""
        self._begin(download=False)

    def stop(self) -> None:
        """End the run that is going, at its next step."""
        if self._bridge.going and self._bridge.state != "stopping":
            self._bridge.stop()

    def save_model(self, ask: Callable[[], str]) -> None:
        """Have the model in training written to the folder that ``ask`` gives, or say why it cannot."""
        running = self._bridge.running
        if running is None or running.workload != "train":
            self._messages.show_message(
                tr("A model can be saved while it trains: start a training run first."), severity="warning"
            )
        else:
            folder = ask()
            if folder and self._bridge.running is not None:
                self._bridge.save(folder)

    def undo(self) -> None:
        """Take the last change of a setting back."""
        self._step_to(self._intent.undo_target, self._intent.undo)

    def redo(self) -> None:
        self._step_to(self._intent.redo_target, self._intent.redo)

    def take(self, config: RunConfig) -> None:
        """Want ``config``, read from a file: one step to undo, refused where the run that is going cannot have it."""
        self._step_to(config, lambda: self._intent.replace(config))

    def device(self) -> DeviceInfo | None:
        """What the settings of the moment would run on; None until the worker has said it."""
        if self._environment is None:
            return None
        try:
            return self._environment.device(self._intent.config.device)
        except ValueError:
            return self._environment.devices[0]

    def reword(self) -> None:
        """Show settings, and the hint where one stands there, in the language of the moment."""
        if self._environment is not None:
            self._panels.run_bar.show_environment(self._environment, self._intent.config.device)
        self._show_device()
        self._redraw()
        self._panels.status.show_state("paused" if self._paused else self._bridge.state)
        if self._messages.severity == "hint":
            self._messages.clear()
            if not self._bridge.going:
                self._messages.show_message(hints.first_step(self._intent.config))

    # ---- from the person

    def _begin(self, *, download: bool) -> None:
        if self._bridge.going:
            return
        config = self._intent.config
        device = self.device()
        found = problems(config, device) if device is not None else {}
        if found:
            self._messages.show_message(tr("Not started. {why}", why=hints.reasons(found)), severity="warning")
            return
        self._bridge.start(config, download=download)

    def _edit(self, fields: dict[str, Any]) -> None:
        try:
            self._intent.change(**fields)
        except ValueError as error:
            self._messages.show_message(tr("Not changed: {why}.", why=from_below(str(error))), severity="problem")
            self._redraw()

    def _step_to(self, target: RunConfig | None, step: Any) -> None:
        if target is None:
            return
        fixed = changed_fields(target, self._intent.config) & FIXED_IN_RUN
        if self._bridge.going and fixed:
            fields = ", ".join(sorted(fixed))
            self._messages.show_message(tr("Stop the run first: {fields} cannot change within it.", fields=fields))
            return
        step()

    def _changed(self, new: RunConfig, old: RunConfig) -> None:
        self._untouched = False
        if new.device != old.device:
            self._show_device()
        self._redraw()
        running = self._bridge.running
        if running is None:
            if not self._bridge.going and (not self._taught or new.workload != old.workload):
                self._messages.show_message(hints.first_step(new))
            return
        fixed = FIXED_IN_TRAINING if running.workload == "train" else FIXED_IN_RUN
        if running.workload == "generate" and (new.more_prompts or running.more_prompts):
            fixed |= {"batch"}  # it goes with the number of prompts, which are used from the next Start on
        wanted = dataclasses.replace(new, **{name: getattr(running, name) for name in fixed})
        device = self.device()
        found = problems(wanted, device) if device is not None else {}
        if found:
            self._messages.show_message(
                tr("The run goes on as it was. {why}", why=hints.reasons(found)), severity="warning"
            )
        elif wanted != running:
            self._messages.clear()
            self._bridge.reconfigure(wanted)

    # ---- from the worker

    def _ready(self, environment: Environment) -> None:
        self._environment = environment
        config = self._intent.config
        cuda = environment.devices[0].kind == "cuda"
        if self._untouched and config != default_config(cuda=cuda) and not self._bridge.going:
            self._intent.correct(default_config(cuda=cuda))
        elif config.device != "auto" and all(config.device != d.id for d in environment.devices):
            self._intent.correct(dataclasses.replace(config, device="auto"))
            self._messages.show_message(
                tr("{device}, which was used last, is not here; auto is used instead.", device=config.device),
                severity="warning",
            )
        self._panels.run_bar.show_environment(environment, self._intent.config.device)
        self._panels.status.show_environment(environment)
        self._show_device()
        self._redraw()

    def _state(self, state: str) -> None:
        self._panels.status.show_state(state)
        if state == "starting" and self._bridge.running is not None:
            self._panels.plots.show_progress(tr("Waiting for the worker to start…"))
        self._show_state()

    def _started(self, run_id: int, config: RunConfig) -> None:
        self._run_id, self._segments_of_run, self._measured = run_id, 0, False
        self._notes.clear()
        self._messages.clear()
        self._panels.plots.begin_run(run_id, config)
        if self._bridge.state == "starting":
            self._panels.plots.show_progress(tr("Waiting for the worker to start…"))
        if config.workload == "generate" or config.sample_every:
            self._panels.text.begin_run(config, run_id=run_id)
        self._panels.runs.refresh()
        self._table.start()
        self._redraw()

    def _progress(self, event: Progress) -> None:
        if event.run_id == self._run_id:
            self._panels.plots.show_progress(hints.progress(event))
        elif event.run_id < 0 and self._bridge.running is not None:  # beside a run there is nothing else
            self._pause(event)

    def _pause(self, event: Progress) -> None:
        """Say in the window itself that no steps come, and why."""
        if not self._paused:
            self._paused = True
            self._bridge.mark(self._run_id, PAUSED)
            self._panels.plots.mark(tr(PAUSED))
            self._panels.status.show_state("paused")
        self._panels.plots.show_progress(tr("Paused for a profile: {activity}", activity=hints.progress(event)))

    def _go_on(self, _: object = None) -> None:
        if self._paused:
            self._paused = False
            self._panels.plots.show_progress(None)
            self._panels.status.show_state(self._bridge.state)

    def _text(self, event: Text) -> None:
        if event.run_id != self._run_id:
            return
        if event.step is None:
            self._panels.text.append_text(event.text, event.row)
        else:
            self._panels.text.append_sample(event.step, event.text)

    def _saved(self, event: Saved) -> None:
        if event.problem is None:
            self._messages.show_message(tr("Saved the model to {folder}.", folder=event.folder), severity="hint")
        else:
            self._messages.show_problem(event.problem)

    def _noted(self, event: Note) -> None:
        # Both arms of a comparison are told of what befalls the machine.
        if event.text not in self._notes:
            self._notes.append(event.text)
            self._messages.show_message("\n".join(map(from_below, self._notes)), severity="warning")

    def _segment(self, event: SegmentStarted) -> None:
        if event.run_id != self._run_id:
            return
        self._segments_of_run += 1
        self._ran, self._peak_bytes = event.config, -1
        self._panels.plots.add_segment(event.run_id, event.config, event.segment)
        self._panels.runs.refresh()

    def _samples(self, run_id: int, samples: list[Sample]) -> None:
        if run_id != self._run_id:
            return
        self._measured = True
        if self._stall_words and self._messages.text.startswith(self._stall_words):
            self._messages.clear()  # it came after all
        self._stall_words = ""
        if self._parked is not None and samples[-1].step >= self._parked.step:
            if self._messages.text == _parked_words(self._parked):
                self._messages.clear()
            self._parked = None
        self._panels.plots.show_progress(None)
        self._panels.plots.add_samples(run_id, samples)
        running = self._bridge.running
        if running is not None and running.workload == "generate":
            self._panels.text.add_samples(samples)
        self._panels.status.show_readings(samples[-1])
        self._show_measured(samples)
        if not self._taught and running is not None and samples[-1].phase == "steady":
            self._taught = True
            if not self._messages.text:
                self._messages.show_message(hints.next_step(running))

    def _show_measured(self, samples: list[Sample]) -> None:
        """The peak of what runs beside its forecast, while that is what is asked for."""
        peaks = [sample.peak_allocated_bytes for sample in samples if sample.phase == "steady"]
        self._peak_bytes = max([self._peak_bytes, *peaks])
        if self._ran is not None and dataclasses.replace(self._ran, device=self._intent.config.device) == (
            self._intent.config
        ):
            self._panels.toggles.forecast.show_measured(self._peak_bytes)

    def _show_parked(self, event: Parked) -> None:
        self._parked = event
        if self._bridge.can_end_worker:
            self._messages.show_message(
                _parked_words(event), severity="hint", action=tr("Give up"), on_action=self._bridge.end_worker
            )
        else:
            self._messages.show_message(_parked_words(event), severity="hint")

    def _refused(self, event: Refused) -> None:
        live = {
            field.name: getattr(event.config, field.name)
            for field in dataclasses.fields(RunConfig)
            if field.name not in FIXED_IN_RUN
        }
        self._intent.correct(dataclasses.replace(self._intent.config, **live))
        self._messages.show_problem(event.problem)

    def _ended(self, event: RunEnded) -> None:
        self._table.stop()
        self._go_on()
        self._panels.plots.show_progress(None)
        self._panels.plots.end_run(event.run_id)
        self._panels.text.end_run()
        self._panels.status.clear_readings()
        self._panels.runs.refresh()
        self._redraw()
        config = self._intent.config
        if event.problem is None:
            self._messages.show_message(
                hints.after_run(event.outcome, config) if self._measured else hints.stopped_early(config)
            )
        elif event.problem.bad_request and self._segments_of_run == 0 and _could_download(config):
            self._messages.show_message(
                problem_words(event.problem),
                severity="problem",
                action=tr("Download and start"),
                on_action=lambda: self._begin(download=True),
            )
        else:
            self._messages.show_problem(event.problem)

    def _lost(self, problem: Problem) -> None:
        self._messages.show_problem(problem)
        self._show_state()

    def _overdue(self) -> None:
        self._offer_to_end(tr("Stop waits for the step that is running; it takes longer than 2 s."))

    def _stalled(self, event: Note) -> None:
        self._stall_words = tr("There was {what}. It may still come.", what=from_below(event.text))
        self._offer_to_end(self._stall_words)

    def _offer_to_end(self, words: str) -> None:
        if self._bridge.can_end_worker:
            self._messages.show_message(
                f"{words} {tr('Ending the worker stops it now; what was measured stays.')}",
                severity="warning",
                action=tr("End worker"),
                on_action=self._bridge.end_worker,
            )
        else:
            self._messages.show_message(
                f"{words} {tr('This worker is a thread of the window and cannot be ended alone.')}",
                severity="warning",
            )

    # ---- to the panels

    def _show_device(self) -> None:
        device = self.device()
        if device is not None:
            self._panels.status.show_device(device)
            self._panels.toggles.show_device(device)
            self._panels.plots.set_device(device)

    def _redraw(self, *_: object) -> None:
        config = self._intent.config
        self._show_state()
        self._panels.run_bar.show_config(config, running=self._bridge.running is not None)
        self._panels.toggles.show_config(config)
        self._panels.toggles.training.show_config(config, running=self._bridge.running is not None)
        self._panels.text.set_config(config)

    def _show_state(self) -> None:
        self._panels.run_bar.show_state(going=self._bridge.going)
        self.state_changed.emit()


def _parked_words(event: Parked) -> str:
    return tr(
        "{changes}: this may take a minute. The state of step {step} is kept in a file: if it fails, the run goes on "
        "from there.",
        changes=", ".join(event.changes),
        step=event.step,
    )


def _could_download(config: RunConfig) -> bool:
    return (config.weights == "pretrained" and config.model in MODELS) or config.text == "wikitext-2"
