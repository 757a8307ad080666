"""What happens with stored runs: those without an end are offered, and any can be shown beside the new ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from explorer.gui.bridge import Bridge
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.panels import Panels
from explorer.gui.stored_dialog import StoredDialog
from explorer.gui.stored_runs import StoredRuns
from explorer.optimizations.registry import baseline_levels
from explorer.results.home import home
from explorer.results.log import RunLog, RunRecord
from explorer.results.machine import elsewhere
from explorer.results.stored import Listing, StoredRun


class StoredControl(QObject):
    """Connects the stored runs with the log, the panels and the person."""

    def __init__(
        self,
        stored: StoredRuns,
        log: RunLog,
        bridge: Bridge,
        panels: Panels,
        messages: MessageBar,
        window: QWidget,
        *,
        diagnose: Callable[[int], None],
    ) -> None:
        """``diagnose``: shows what held up the run of this number."""
        super().__init__(messages)
        self._stored = stored
        self._log = log
        self._bridge = bridge
        self._panels = panels
        self._messages = messages
        self._window = window
        self._diagnose = diagnose
        self._dialog: StoredDialog | None = None
        self._lost: list[StoredRun] = []
        self._folder = home()
        stored.said.connect(lambda line: messages.show_message(_sentence(line), severity="warning"))
        stored.failed.connect(self._fail)
        stored.lost.connect(self._offer)
        stored.listed.connect(self._list)
        stored.loaded.connect(self._take)
        stored.changed.connect(self._changed)
        # What the worker's start has to say would hide the offer for good.
        bridge.worker_ready.connect(lambda _: self._offer(self._lost))

    def open(self) -> None:
        """Show the list of stored runs."""
        if not self._kept():
            return
        if self._dialog is None:
            dialog = self._dialog = StoredDialog(self._window)
            dialog.show_wanted.connect(self._stored.load)
            dialog.bundle_wanted.connect(self._write_bundle)
            dialog.delete_wanted.connect(self._delete)
        self._stored.read_list()
        self._dialog.show()
        self._dialog.raise_()
        self._dialog.activateWindow()

    def take_in(self) -> None:
        """Ask for a bundle or a CSV of runs, and take in what it holds."""
        if not self._kept():
            return
        title, kinds = tr("Import runs"), tr("Bundle or CSV of runs (*.zip *.csv);;All files (*)")
        chosen, _ = QFileDialog.getOpenFileName(self._window, title, str(self._folder), kinds)
        if chosen:
            self._folder = Path(chosen).parent
            self._stored.take_in(Path(chosen))

    def reword(self) -> None:
        """Open the list anew where it is open, in the language of the moment."""
        dialog, self._dialog = self._dialog, None
        if dialog is not None:
            was_open = dialog.isVisible()
            dialog.close()
            dialog.deleteLater()
            if was_open:
                self.open()

    def close(self) -> None:
        """Close the list with the window."""
        if self._dialog is not None:
            self._dialog.close()

    # ---- from the person

    def _kept(self) -> bool:
        if not self._stored.kept:
            words = tr("Runs are not kept, as was asked for when the window was opened (--no-store).")
            self._messages.show_message(words, severity="warning")
        return self._stored.kept

    def _show_lost(self) -> None:
        self._stored.load([line.id for line in self._lost])
        self._settle()

    def _settle(self) -> None:
        self._lost = []
        self._stored.settle_lost()

    def _write_bundle(self, ids: list[int]) -> None:
        title = tr("Write a bundle")
        chosen, _ = QFileDialog.getSaveFileName(
            self._dialog, title, str(self._folder / "runs.zip"), tr("Bundle (*.zip)")
        )
        if chosen:
            self._folder = Path(chosen).parent
            self._stored.write_bundle(ids, Path(chosen))

    def _delete(self, ids: list[int]) -> None:
        what = tr("run {id}", id=ids[0]) if len(ids) == 1 else tr("these {count} runs", count=len(ids))
        words = tr("Delete {what} for good, with every step? This cannot be undone.", what=what)
        buttons = QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.Cancel
        answer = QMessageBox.question(
            self._dialog or self._window, tr("Delete"), words, buttons, QMessageBox.StandardButton.Cancel
        )
        if answer == QMessageBox.StandardButton.Yes:
            self._stored.delete(ids)

    # ---- from the file

    def _offer(self, lost: list[StoredRun]) -> None:
        self._lost = lost
        if not lost or self._bridge.going or self._messages.severity == "problem":
            return
        last = lost[-1]
        what = tr(
            "{label}, {steps:,} steps, {when}",
            label=from_below(last.label(baseline_levels())),
            steps=last.samples,
            when=last.started_at[:16].replace("T", " "),
        )
        if len(lost) == 1:
            words = tr("The last run ended without being closed ({what}).", what=what)
        else:
            words = tr("{count} runs ended without being closed (the last: {what}).", count=len(lost), what=what)
        self._messages.show_message(
            words,
            severity="warning",
            action=tr("Show it") if len(lost) == 1 else tr("Show them"),
            on_action=self._show_lost,
            on_dismiss=self._settle,
        )

    def _list(self, listing: Listing) -> None:
        if self._dialog is not None:
            self._dialog.show_listing(listing)
        if listing.unreadable:
            self._messages.show_message(_sentence("; ".join(listing.unreadable)), severity="warning")

    def _take(self, records: list[RunRecord]) -> None:
        """Put stored runs beside those of this session, and the last of them on the curves."""
        here = {run.uid: run.run_id for run in self._log.runs}
        ids = []
        for record in records:
            if record.uid not in here:
                record.run_id = here[record.uid] = self._bridge.number_run()
                self._log.add(record)
            ids.append(here[record.uid])
        self._panels.runs.refresh()
        words = tr("Shown as {runs} in the table.", runs=", ".join(map(str, ids)))
        if any(kept.figures is not None for record in records for kept in record.segments):
            words += " " + tr("What came as a CSV has no steps, and so no curves.")
        last = self._log.run(ids[-1])
        if not self._bridge.going and len(last.columns):
            self._show(last)
        foreign = elsewhere(records, self._log.environment)
        if foreign:
            words += " " + tr("Measured on {where}: its speed does not compare with runs made here.", where=foreign)
        self._messages.show_message(words, severity="warning" if foreign else "hint")

    def _show(self, record: RunRecord) -> None:
        self._panels.plots.show_run(record.run_id)
        self._diagnose(record.run_id)
        if record.config.workload == "generate":
            self._panels.text.show_stored(record.config, record.text, run_id=record.run_id)

    def _changed(self, words: str) -> None:
        self._messages.show_message(words)
        if self._dialog is not None and self._dialog.isVisible():
            self._stored.read_list()

    def _fail(self, why: str) -> None:
        self._messages.show_message(_sentence(why), severity="problem")


def _sentence(line: str) -> str:
    said = from_below(line)
    return said if said != line else line[:1].upper() + line[1:].rstrip(".") + "."
