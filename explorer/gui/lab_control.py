"""The lab in the window: what the person asks for, what the worker measures, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from explorer.experiments.kept import Kept
from explorer.experiments.lab import Wanted, lab, lab_cases, lab_cells, lab_conditions
from explorer.experiments.single import WorkerGone
from explorer.experiments.steps import Steps
from explorer.gui.bridge import Bridge
from explorer.gui.lab_panel import LabPanel
from explorer.gui.language import from_below, tr
from explorer.gui.long_work import KeptFiles, Parts
from explorer.gui.message_bar import MessageBar
from explorer.messages import Progress
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.lab import LabRow
from explorer.results.log import RunLog

CLOCK_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an experiment of the lab ended."""

    rows: Sequence[LabRow]
    why: str = ""
    """What went wrong, in words, or nothing."""


class LabControl(QObject):
    """Connects panel and bridge."""

    def __init__(
        self,
        panel: LabPanel,
        bridge: Bridge,
        messages: MessageBar,
        log: RunLog,
        *,
        folder: Path | None,
        wanted_device: Callable[[], str],
        show_panel: Callable[[], None],
    ) -> None:
        """``folder``: where what was measured is kept; None: nowhere beyond this window.

        ``wanted_device``: what the settings of the moment name.
        """
        super().__init__(messages)
        self._conducted = False
        self._panel = panel
        self._bridge = bridge
        self._messages = messages
        self._log = log
        self._kept = KeptFiles(folder, self._not_kept)
        self._wanted_device = wanted_device
        self._show_panel = show_panel
        self._ids: set[int] = set()
        self._rows: Sequence[LabRow] = ()
        self._on: tuple[DeviceInfo, Environment] | None = None
        self._total = 0
        self._parts = Parts()
        self._activity = ""
        self._clock = QTimer(self)
        self._clock.setInterval(CLOCK_MS)
        self._clock.timeout.connect(self._show_progress)
        panel.start_wanted.connect(self.start)
        panel.stop_wanted.connect(bridge.stop)
        bridge.progress.connect(self._progress)
        bridge.experiment_ended.connect(self._ended)

    @property
    def measuring(self) -> bool:
        """Whether the experiment that is going is the lab's."""
        return self._conducted and self._bridge.experimenting

    @property
    def cells(self) -> list[dict[str, Cell]]:
        """The results as CSV has them."""
        return lab_cells(self._rows, *self._on) if self._on is not None else []

    def start(self) -> None:
        """Measure what is chosen, or say why not."""
        here = self._log.environment
        if self._bridge.going or here is None:
            words = tr("The lab needs the worker to itself: stop what is going first.")
            self._messages.show_message(
                words if here is not None else tr("The worker has not yet said what can run here."), severity="warning"
            )
            return
        quick = self._panel.quick.isChecked()
        try:
            device = here.device(self._wanted_device())
            wanted = lab_cases(device, quick=quick, only=self._panel.chosen())
            conditions = lab_conditions(device, here, quick=quick)
            kept = self._kept.of("lab", conditions, go_on=self._panel.go_on.isChecked())
        except (ValueError, OSError) as error:
            self._messages.show_message(tr("Not measured: {why}", why=from_below(str(error))), severity="problem")
            return
        self._conducted = True
        self._on, self._rows, self._ids = (device, here), (), set()
        self._parts = Parts()
        self._total = self._parts.left = len(wanted)
        self._activity = tr("Waiting for the worker to start…")
        self._messages.clear()
        self._show_panel()
        self._panel.show_rows(())
        self._bridge.conduct(self._steps(wanted, device, kept, quick=quick))
        self._clock.start()
        self._show_progress()

    def reword(self) -> None:
        """Show the panel in the language of the moment."""
        self._panel.reword()
        if self.measuring:
            self._show_progress()
        else:
            self._show_end()

    def show_state(self) -> None:
        """Let those buttons be pressed that do something."""
        self._panel.show_state(going=self._bridge.going, measuring=self.measuring)

    def _steps(self, wanted: Sequence[Wanted], device: DeviceInfo, kept: Kept, *, quick: bool) -> Steps[Ended]:
        try:
            rows = yield from lab(
                wanted,
                device=device,
                quick=quick,
                kept=kept,
                asked_to_stop=self._bridge.asked_to_stop,
                on_part=self._begin_part,
                on_rows=self._take,
                next_id=self._next_id,
            )
        except WorkerGone as error:
            return Ended(rows=self._rows, why=str(error))
        return Ended(rows=rows)

    def _not_kept(self, why: str) -> None:
        self._messages.show_message(
            tr("Measured on, but not kept for another time: {why}", why=from_below(why)), severity="warning"
        )

    def _next_id(self) -> int:
        run_id = self._bridge.reserve_id()
        self._ids.add(run_id)
        return run_id

    def _begin_part(self, name: str, left: int) -> None:
        self._parts.begin(name, left)
        self._activity = name
        self._show_progress()

    def _progress(self, event: Progress) -> None:
        if event.run_id in self._ids:
            self._activity = event.activity
            self._show_progress()

    def _take(self, rows: Sequence[LabRow]) -> None:
        self._rows = tuple(rows)
        self._panel.show_rows(self._rows)

    def _ended(self, outcome: object) -> None:
        if not self._conducted:
            return  # another experiment's end
        self._conducted = False
        self._clock.stop()
        self._show_end()
        if isinstance(outcome, Ended) and outcome.why:
            self._messages.show_message(tr("The lab ended: {why}", why=from_below(outcome.why)), severity="problem")

    def _show_progress(self) -> None:
        done = self._total - self._parts.left
        words = tr("{activity} · {done} of {total} cases", activity=self._activity, done=done, total=self._total)
        self._panel.show_progress(" · ".join(filter(None, (words, self._parts.time_left()))))

    def _show_end(self) -> None:
        if self._on is None:
            self._panel.show_progress("")
            return
        failed = sum(row.outcome == "failed" for row in self._rows)
        words = tr("{count} results on {device}", count=len(self._rows), device=self._on[0].name)
        self._panel.show_progress(words + (tr(", {count} failed", count=failed) if failed else ""))
