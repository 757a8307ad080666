"""From the model that the settings name to a file for serving, written by the worker."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from explorer.experiments.export_model import export_model
from explorer.gui.bridge import Bridge
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import MessageBar
from explorer.messages import Export, Exported, Problem, Progress


class ModelExportControl(QObject):
    """Asks where to, says what the worker is at, and can call it off."""

    def __init__(self, bridge: Bridge, intent: Intent, messages: MessageBar) -> None:
        super().__init__(messages)
        self._bridge = bridge
        self._intent = intent
        self._messages = messages
        self._command: Export | None = None
        bridge.progress.connect(self._progress)
        bridge.experiment_ended.connect(self._ended)

    def export(self, ask: Callable[[], str]) -> None:
        """Export to the file that ``ask`` gives, or say why not."""
        obstacle = self._obstacle()
        if obstacle:
            self._messages.show_message(obstacle, severity="warning")
            return
        target = ask()
        if not target or self._bridge.going:
            return
        command = Export(run_id=self._bridge.reserve_id(), config=self._intent.config, target=target)
        self._command = command
        self._say(tr("waiting for the worker"))
        self._bridge.conduct(export_model(command, asked_to_stop=self._bridge.asked_to_stop))

    def _obstacle(self) -> str:
        if self._bridge.going:
            return tr("Stop the run first. A model in training: save it as a folder (File menu), then export that.")
        if self._intent.config.weights == "random":
            return tr("The settings name random weights: choose a saved folder, pretrained, or mini, bundled.")
        return ""

    def _progress(self, event: Progress) -> None:
        if self._command is not None and event.run_id == self._command.run_id:
            self._say(from_below(event.activity))

    def _say(self, activity: str) -> None:
        assert self._command is not None
        self._messages.show_message(
            tr("Exporting {model}: {activity}…", model=self._command.config.model, activity=activity),
            action=tr("Cancel"),
            on_action=self._bridge.stop,
        )

    def _ended(self, found: object) -> None:
        command, self._command = self._command, None
        if command is None:
            return
        match found:
            case Exported():
                self._messages.show_message(
                    tr(
                        "Exported to {file} ({size:.1f} MiB): its logits are within {error:.1e} of the model's.",
                        file=found.target,
                        size=found.size_bytes / 2**20,
                        error=found.largest_error,
                    )
                )
            case Problem():
                self._messages.show_problem(found)
            case _:
                self._messages.show_message(tr("The export was cancelled; nothing was written."), severity="warning")
