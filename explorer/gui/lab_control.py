"""The lab in the window: what the person asks for, what the worker measures, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from explorer.experiments.kept import Kept
from explorer.experiments.lab import Wanted, lab, lab_cases, lab_cells, lab_conditions
from explorer.experiments.single import WorkerGone
from explorer.experiments.steps import Steps
from explorer.gui.bridge import Bridge
from explorer.gui.file_writer import FileWriter
from explorer.gui.lab_panel import LabPanel
from explorer.gui.language import from_below, later, tr
from explorer.gui.long_work import Ended, LongWork
from explorer.gui.message_bar import MessageBar
from explorer.messages import Progress
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.lab import LabRow
from explorer.results.log import RunLog


class LabControl(LongWork):
    """Connects panel and bridge."""

    ended_words = later("The lab ended: {why}")

    def __init__(
        self,
        panel: LabPanel,
        bridge: Bridge,
        messages: MessageBar,
        log: RunLog,
        *,
        folder: Path | None,
        writer: FileWriter,
        wanted_device: Callable[[], str],
        show_panel: Callable[[], None],
    ) -> None:
        """``wanted_device``: what the settings of the moment name."""
        super().__init__(bridge, messages, log, folder=folder, writer=writer)
        self._panel = panel
        self._wanted_device = wanted_device
        self._show_panel = show_panel
        self._rows: Sequence[LabRow] = ()
        self._on: tuple[DeviceInfo, Environment] | None = None
        self._total = 0
        panel.start_wanted.connect(self.start)
        panel.stop_wanted.connect(bridge.stop)

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
        here = self._environment(busy=tr("The lab needs the worker to itself: stop what is going first."))
        if here is None:
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
        self._on, self._rows, self._total = (device, here), (), len(wanted)
        self._show_panel()
        self._panel.show_rows(())
        self._begin(self._steps(wanted, device, kept, quick=quick), left=self._total)

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
            yield from lab(
                wanted,
                device=device,
                quick=quick,
                kept=kept,
                asked_to_stop=self._bridge.asked_to_stop,
                on_part=self._begin_part,
                on_rows=self._take,
                next_id=self._work_id,
            )
        except WorkerGone as error:
            return Ended(why=str(error))
        return Ended()

    def _told(self, event: Progress) -> str:
        return event.activity

    def _take(self, rows: Sequence[LabRow]) -> None:
        self._rows = tuple(rows)
        self._panel.show_rows(self._rows)

    def _show_progress(self) -> None:
        done = self._total - self._parts.left
        activity = self._activity or self._parts.name
        words = tr("{activity} · {done} of {total} cases", activity=activity, done=done, total=self._total)
        self._panel.show_progress(" · ".join(filter(None, (words, self._parts.time_left()))))

    def _show_end(self) -> None:
        if self._on is None:
            self._panel.show_progress("")
            return
        failed = sum(row.outcome == "failed" for row in self._rows)
        words = tr("{count} results on {device}", count=len(self._rows), device=self._on[0].name)
        self._panel.show_progress(words + (tr(", {count} failed", count=failed) if failed else ""))
