"""From the menu to a CSV file: asks where, writes, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from explorer.gui.message_bar import MessageBar
from explorer.optimizations.registry import baseline_levels
from explorer.results.export import write_samples, write_segments
from explorer.results.log import RunLog


class Exporter:
    """Writes ``log`` to files that the person names. What fails is said in ``messages``; the log stays as it is."""

    def __init__(self, log: RunLog, messages: MessageBar, parent: QWidget) -> None:
        self._log = log
        self._messages = messages
        self._parent = parent
        self._folder = Path.home()

    def export_segments(self) -> None:
        """One row a segment."""
        self._export(
            "Export runs", "runs.csv", lambda p: write_segments(p, self._log.runs, toggles=baseline_levels()), "segment"
        )

    def export_steps(self) -> None:
        """One row a step."""
        self._export("Export steps", "steps.csv", lambda p: write_samples(p, self._log.runs), "step")

    def _export(self, title: str, name: str, write: Callable[[Path], None], row: str) -> None:
        if not any(run.segments for run in self._log.runs):
            self._messages.show_message("There is nothing to export yet: start a run first.", severity="warning")
            return
        chosen, _ = QFileDialog.getSaveFileName(self._parent, title, str(self._folder / name), "CSV (*.csv)")
        if not chosen:
            return
        path = Path(chosen)
        try:
            write(path)
        except (ValueError, RuntimeError, OSError) as error:
            self._messages.show_message(f"Not exported: {error}", severity="problem")
            return
        self._folder = path.parent
        self._messages.show_message(f"Exported one row a {row} to {path}.", severity="hint")
