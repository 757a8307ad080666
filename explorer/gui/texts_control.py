"""From two configurations that generate to their texts side by side, and to what their checks show."""

from __future__ import annotations

from PySide6.QtCore import QObject

from explorer.experiments.arms import Arms, names
from explorer.experiments.texts import BothTexts, CheckedTexts, alike, write_and_check
from explorer.gui.bridge import Bridge
from explorer.gui.language import tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.panels import Panels
from explorer.results.log import RunLog


class TextsControl(QObject):
    """Has A write, then B, and shows both in the text panel as they come."""

    def __init__(self, bridge: Bridge, panels: Panels, messages: MessageBar, log: RunLog) -> None:
        super().__init__(messages)
        self._bridge = bridge
        self._panels = panels
        self._messages = messages
        self._log = log
        self._writing = False
        self._arms: Arms | tuple[()] = ()
        bridge.experiment_ended.connect(self._ended)

    def write(self, arms: Arms, *, download: bool) -> None:
        """Begin: both from A's prompt and seed."""
        arms = alike(arms)
        first, second = self._bridge.begin_runs(*arms)
        self._panels.runs.mark_arms(first, second)
        pair = self._panels.text.begin_pair(arms[0].prompt, names(arms))
        self._messages.clear()
        self._writing = True
        self._arms = arms
        checked = self._panels.compare.checks.isChecked()
        self._bridge.conduct(
            write_and_check(
                (first, second),
                arms,
                checks_id=self._bridge.reserve_id(),
                parity=checked,
                proof=checked,
                download=download,
                asked_to_stop=self._bridge.asked_to_stop,
                on_text=pair.append_text,
                on_written=pair.show_written,
                on_both=self._show_both,
            )
        )

    def _show_both(self, both: BothTexts) -> None:
        self._panels.text.pair.end(complete=len(both.arms) == 2)

    def _ended(self, outcome: CheckedTexts | None) -> None:
        if not self._writing:
            return
        self._writing = False
        self._panels.runs.refresh()
        if outcome is None:
            self._panels.text.pair.end(complete=False)
            return
        both, checks = outcome
        a, b = (checks[arm] for arm in self._arms)
        if any(found.parity_done or found.proof_done for found in (a, b) if not found.is_reference):
            self._panels.text.pair.show_checks((a, b))
        if both.problem is not None:
            self._messages.show_problem(both.problem)
        elif len(both.arms) < 2:
            self._messages.show_message(tr("Stopped before both texts were written."), severity="warning")
        if not both.worker_usable and self._bridge.can_end_worker:
            self._bridge.end_worker()
