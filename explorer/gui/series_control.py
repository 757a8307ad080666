"""Ladder, sweep, attribution and A/A floor in the window: what is asked for, what the worker measures, what is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from explorer.experiments.compare import BLOCK_S, Limits
from explorer.experiments.keeping import Keeping
from explorer.experiments.kept import conditions
from explorer.experiments.plans import Plan
from explorer.experiments.recorder import Recorder
from explorer.experiments.series import Series
from explorer.experiments.single import WorkerGone
from explorer.experiments.steps import Steps
from explorer.experiments.yardsticks import yardsticks
from explorer.gui.bridge import Bridge
from explorer.gui.file_writer import FileWriter
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.long_work import Ended, LongWork
from explorer.gui.message_bar import MessageBar
from explorer.gui.series_page import Kind, SeriesPage
from explorer.gui.series_panel import SeriesPanel
from explorer.messages import BlockEnded
from explorer.results.blocks import Blocks
from explorer.results.environment import Environment
from explorer.results.log import RunLog


class SeriesControl(LongWork):
    """Connects panel, intent and bridge."""

    block_s = BLOCK_S
    """Least seconds a block."""

    def __init__(
        self,
        panel: SeriesPanel,
        intent: Intent,
        bridge: Bridge,
        messages: MessageBar,
        log: RunLog,
        recorder: Recorder,
        *,
        folder: Path | None,
        writer: FileWriter,
        show_panel: Callable[[], None],
        runs_changed: Callable[[], None],
    ) -> None:
        super().__init__(bridge, messages, log, folder=folder, writer=writer)
        self._panel = panel
        self._intent = intent
        self._recorder = recorder
        self._show_panel = show_panel
        self._runs_changed = runs_changed
        self._kind: Kind = "ladder"
        """Of the newest experiment."""
        panel.start_wanted.connect(self.start)
        panel.stop_wanted.connect(bridge.stop)
        intent.changed.connect(self._suggest)
        bridge.worker_ready.connect(self._suggest)
        bridge.block_ended.connect(self._block)
        bridge.segment_started.connect(lambda _: self._runs_changed())

    @property
    def measuring(self) -> Kind | None:
        """The experiment that is going, if it is one of these."""
        return self._kind if self._conducted and self._bridge.experimenting else None

    def show(self, kind: Kind) -> None:
        """Bring the page of ``kind`` to the front."""
        self._show_panel()
        self._panel.show_page(kind)

    def show_state(self) -> None:
        """Let those buttons be pressed that do something."""
        self._panel.show_state(going=self._bridge.going, measuring=self.measuring)

    def reword(self) -> None:
        """Show the panel in the language of the moment."""
        self._panel.reword()
        for page in self._panel.pages.values():
            self._show_count(page)
        if self.measuring is not None:
            self._show_progress()

    def start(self, kind: Kind) -> None:
        """Measure what the page of ``kind`` asks for, or say why not."""
        busy = tr("An experiment needs the worker to itself: stop what is going first (Shift+F5).")
        here = self._environment(busy=busy)
        if here is None:
            return
        page = self._panel.pages[kind]
        try:
            plan = page.plan(self._intent.config, here)
            series = self._series(kind, page, plan, here)
        except (ValueError, OSError) as error:
            self._messages.show_message(tr("Not measured: {why}", why=from_below(str(error))), severity="problem")
            return
        self._kind = kind
        self.show(kind)
        page.show_found(None, [], plan.toggles)
        held = yardsticks(plan.base, here, block_s=self.block_s)

        def on_found(found: Any) -> None:
            page.show_found(found, plan.rows(found, held), plan.toggles)

        self._begin(self._steps(plan, series, on_found))

    def _series(self, kind: Kind, page: SeriesPage, plan: Plan, here: Environment) -> Series:
        keeping = Keeping(self._recorder, here, block_s=self.block_s, begin_run=self._bridge.begin_run)
        return Series(
            kept=self._kept.of(
                kind,
                conditions(plan.base, here, block_s=self.block_s),
                about=plan.base.to_dict(),
                go_on=page.go_on.isChecked(),
            ),
            limits=Limits(budget_s=page.budget.value()),
            block_s=self.block_s,
            download=False,
            asked_to_stop=self._bridge.asked_to_stop,
            on_part=self._begin_part,
            on_pair=self._pair,
            ids=iter(self._run_id, None),
            work_ids=iter(self._work_id, None),
            on_begin=keeping.begin,
            on_compared=keeping.end,
        )

    def _steps(self, plan: Plan, series: Series, on_found: Callable[[Any], None]) -> Steps[Ended]:
        try:
            on_found((yield from plan.run(series, on_found)))
        except (WorkerGone, RuntimeError) as error:
            return Ended(why=str(error))
        return Ended()

    def _run_id(self) -> int:
        run_id = self._bridge.number_run()
        self._ids.add(run_id)
        return run_id

    def _suggest(self, *_: object) -> None:
        if self._log.environment is None:
            return
        config = self._intent.config
        for page in self._panel.pages.values():
            page.show_workload(config.workload)
        try:
            device = self._log.environment.device(config.device)
        except ValueError:
            return  # said where the device is chosen
        for page in self._panel.pages.values():
            page.suggest(dataclasses.replace(config, workload="train"), device)

    # ---- from the worker

    def _block(self, event: BlockEnded) -> None:
        if event.run_id in self._ids:
            self._activity = tr("measuring by turns")
            self._runs_changed()

    def _pair(self, blocks: Blocks) -> None:
        interval = blocks.interval()
        if interval is not None:
            self._activity = tr(
                "{count} pairs: {ratio}x ({low} – {high})",
                count=interval.n_pairs,
                ratio=f"{interval.ratio:.3f}",
                low=f"{interval.low:.3f}",
                high=f"{interval.high:.3f}",
            )
            self._show_progress()

    def _show_end(self) -> None:
        self._show_count(self._panel.pages[self._kind])
        self._runs_changed()

    def _failures(self) -> str:
        rows = self._panel.pages[self._kind].rows
        failed = [str(row["problem"]) for row in rows if row.get("problem") and row.get("outcome") in (None, "failed")]
        if not failed:
            return ""
        return tr("{count} of {all} rows failed: {why}", count=len(failed), all=len(rows), why=from_below(failed[0]))

    @staticmethod
    def _show_count(page: SeriesPage) -> None:
        page.show_progress(tr("{count} rows", count=len(page.rows)) if page.rows else None)

    def _show_progress(self) -> None:
        left = tr("{count} left to do", count=self._parts.left) if self._parts.left else ""
        told = (from_below(self._parts.name), left, self._parts.time_left(), self._activity)
        self._panel.pages[self._kind].show_progress(" · ".join(filter(None, told)))
