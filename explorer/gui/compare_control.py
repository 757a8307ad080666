"""From two pinned configurations to a verdict, or to two texts: what the person asks for, and what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer
from PySide6.QtGui import QGuiApplication

from explorer.config import RunConfig
from explorer.experiments.arms import Arms, fair, names
from explorer.experiments.checked_comparison import CheckedComparison, checks_row, compare_and_check
from explorer.experiments.compare import BLOCK_S, Compared, Limits, block_of
from explorer.experiments.floors import known_floor
from explorer.experiments.recorder import Recorder
from explorer.gui import hints
from explorer.gui.bridge import Bridge
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.panels import Panels
from explorer.gui.pins import LETTERS, Arm, Pins
from explorer.gui.texts_control import TextsControl
from explorer.messages import BlockEnded, Compare, Progress, RunEnded, SegmentStarted
from explorer.optimizations.registry import problems
from explorer.results.blocks import Blocks, in_words
from explorer.results.checks import Checks
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.floor import ASSUMED_FLOOR
from explorer.results.log import RunLog
from explorer.results.sample import Sample

CLOCK_MS = 500


class CompareControl(QObject):
    """Connects pins, intent, bridge and panels."""

    block_s = BLOCK_S
    """Least seconds a block."""

    def __init__(
        self,
        pins: Pins,
        intent: Intent,
        bridge: Bridge,
        panels: Panels,
        messages: MessageBar,
        log: RunLog,
        recorder: Recorder,
        *,
        show_panel: Callable[[], None],
    ) -> None:
        super().__init__(messages)
        self.record: ComparisonRecord | None = None
        """The last comparison."""
        self._pins = pins
        self._intent = intent
        self._bridge = bridge
        self._panels = panels
        self._messages = messages
        self._log = log
        self._recorder = recorder
        self._show_panel = show_panel
        self._texts = TextsControl(bridge, panels, messages, log)
        self._ids: tuple[int, ...] = ()
        self._checks_id = 0
        self._arms: Arms | None = None
        self._first_block_s: float | None = None
        self._peak_bytes = (-1, -1)
        self._checks: tuple[Checks, Checks] | None = None
        self._after_stop = False
        self._conducted = False
        self._clock = QTimer(self)
        self._clock.setInterval(CLOCK_MS)
        self._clock.timeout.connect(self._show_time_left)

        pins.changed.connect(self._show_pins)
        intent.changed.connect(self._show_pins)
        bar = panels.pins
        bar.pin_wanted.connect(lambda arm: pins.pin(arm, intent.config))
        bar.settings_wanted.connect(self._take_settings)
        bar.release_wanted.connect(lambda arm: pins.pin(arm, None))
        bar.compare_wanted.connect(self.compare)
        bar.stop_wanted.connect(bridge.stop)
        panels.runs.pin_wanted.connect(self._pin_row)
        panels.runs.compare_wanted.connect(self._compare_rows)
        panels.compare.copy_wanted.connect(self.copy)
        bridge.progress.connect(self._progress)
        bridge.segment_started.connect(self._segment)
        bridge.samples.connect(self._samples)
        bridge.block_ended.connect(self._block)
        bridge.experiment_ended.connect(self._ended)
        bridge.run_ended.connect(self._run_ended)
        self._show_pins()

    @property
    def comparing(self) -> bool:
        """Whether the experiment that is going is a comparison."""
        return self._conducted and self._bridge.experimenting

    def pin(self, arm: Arm) -> None:
        """Pin the row that is selected while the table has the focus, else the settings of the moment."""
        selected = self._panels.runs.selected() if self._panels.runs.hasFocus() else []
        if len(selected) == 1:
            self._pin_row(arm)
        else:
            self._pins.pin(arm, self._intent.config)

    def compare(self) -> None:
        """Compare A with B, or with the settings of the moment where B is not pinned."""
        self._begin(download=False)

    def copy(self) -> None:
        """Copy the verdict, in the words of ``main.py compare``."""
        result = None if self.record is None else self.record.result()
        if self.record is None or result is None:
            self._messages.show_message(tr("There is no verdict to copy yet: compare first."), severity="warning")
            return
        QGuiApplication.clipboard().setText(in_words(result, a=self.record.names[0], b=self.record.names[1]))

    def reword(self) -> None:
        """Show pins, floor and verdict in the language of the moment."""
        self._show_pins()
        self._panels.pins.show_state(comparing=self.comparing)
        panel = self._panels.compare
        if self.record is None:
            panel.clear()
            return
        panel.show_floor(self.record)
        panel.show_names(self.record)
        result = self.record.result()
        if result is not None:
            panel.show_result(result, peak_bytes=self._peak_bytes)
        if self._checks is not None:
            panel.show_checks(self._checks, self.record.names)

    def _begin(self, *, download: bool) -> None:
        if self.comparing:
            return
        if self._pins.a is None:
            self._messages.show_message(
                tr("Pin the settings of the moment as A first (Ctrl+Shift+A), then change a toggle"), severity="warning"
            )
            return
        if self._bridge.experimenting:
            words = tr("An experiment is going, and a comparison needs the device to itself: stop it first (Shift+F5).")
            self._messages.show_message(words, severity="warning")
            return
        if self._bridge.going:
            self._messages.show_message(
                tr("A run is going, and a comparison needs the device to itself."),
                severity="warning",
                action=tr("Stop it and compare"),
                on_action=self._stop_first,
            )
            return
        here = self._log.environment
        try:
            arms = fair(
                self._pins.a,
                self._pins.b or self._intent.config,
                here=here,
                keep_dropout=self._panels.compare.keep_dropout.isChecked(),
            )
        except ValueError as error:
            self._messages.show_message(tr("Not compared: {why}.", why=from_below(str(error))), severity="warning")
            return
        for letter, arm in zip(LETTERS, arms, strict=True):
            found = problems(arm, here.device(arm.device)) if here is not None else {}
            if found:
                self._messages.show_message(
                    tr("Not compared. {arm}: {why}", arm=letter, why=hints.reasons(found)), severity="warning"
                )
                return
        if arms[0].workload == "generate":
            self._texts.write(arms, download=download)
        else:
            self._conduct(arms, download=download)

    def _conduct(self, arms: Arms, *, download: bool) -> None:
        self._first_block_s = None
        self._checks = None
        self._arms = arms
        first, second = self._ids = self._bridge.begin_runs(*arms)
        self.record = ComparisonRecord(
            run_uids=(self._log.run(first).uid, self._log.run(second).uid),
            names=names(arms),
            floor=ASSUMED_FLOOR,
            floor_measured=False,
        )
        self._recorder.begin_comparison(self.record)
        self._checks_id = self._bridge.reserve_id()
        self._panels.runs.mark_arms(first, second)
        self._panels.compare.begin(self.record)
        self._panels.compare.show_activity(tr("Waiting for the worker to start…"))
        self._messages.clear()
        self._show_panel()
        command = Compare(
            run_ids=(first, second), arms=arms, block_s=self.block_s, seed=arms[0].seed, download=download
        )
        checked = self._panels.compare.checks.isChecked()
        self._conducted = True
        self._bridge.conduct(
            compare_and_check(
                command,
                limits=Limits(budget_s=self._panels.compare.budget.value()),
                checks_id=self._checks_id,
                parity=checked,
                proof=checked,
                asked_to_stop=self._bridge.asked_to_stop,
                on_pair=self._pair,
                on_compared=self._compared,
            )
        )
        self._clock.start()

    # ---- from the person

    def _stop_first(self) -> None:
        self._after_stop = True
        self._bridge.stop()

    def _run_ended(self, _: RunEnded) -> None:
        if self._after_stop:
            self._after_stop = False
            self.compare()

    def _take_settings(self, arm: Arm) -> None:
        config = self._pinned(arm)
        if config is not None:
            self._intent.replace(config)

    def _pinned(self, arm: Arm) -> RunConfig | None:
        return self._pins.b if arm else self._pins.a

    def _pin_row(self, arm: Arm) -> None:
        for run_id, segment in self._panels.runs.selected()[:1]:
            self._pins.pin(arm, self._log.run(run_id).segment(segment).config)

    def _compare_rows(self) -> None:
        rows = self._panels.runs.selected()
        if len(rows) != 2:
            self._messages.show_message(
                tr("Select two rows of the table (Ctrl+click): the upper one becomes A, the lower one B."),
                severity="warning",
            )
            return
        for arm, (run_id, segment) in enumerate(rows):
            self._pins.pin(1 if arm else 0, self._log.run(run_id).segment(segment).config)
        self.compare()

    # ---- from the worker

    def _progress(self, event: Progress) -> None:
        if event.run_id == self._checks_id:
            self._panels.compare.show_checking(hints.progress(event))
        elif event.run_id in self._ids and self._first_block_s is None:
            self._panels.compare.show_activity(hints.progress(event))

    def _segment(self, event: SegmentStarted) -> None:
        if event.run_id not in self._ids:
            return
        self._panels.runs.refresh()
        if self.record is not None and self._arms is not None and self._log.environment is not None:
            floor = known_floor(self._arms, self._log.environment, block_s=self.block_s)
            self.record.floor, self.record.floor_measured = floor
            self._panels.compare.show_floor(self.record)

    def _samples(self, run_id: int, samples: list[Sample]) -> None:
        if run_id not in self._ids:
            return
        last = samples[-1]
        self._panels.status.show_readings(last)
        if last.block < 0:
            letter = LETTERS[self._ids.index(run_id)]
            words = tr("{arm} runs alone until its step time settles: {steps} steps", arm=letter, steps=last.step + 1)
            self._panels.compare.show_activity(words)
        else:
            self._panels.compare.show_activity(tr("Measuring by turns, in blocks. Stop ends it with what there is."))

    def _block(self, event: BlockEnded) -> None:
        if event.run_id not in self._ids:
            return  # a block of a ladder, an attribution or a floor
        if self._first_block_s is None:
            self._first_block_s = time.monotonic()
        self._panels.compare.add_block(event.arm, event.pair, block_of(event))
        self._panels.runs.refresh()

    def _pair(self, blocks: Blocks) -> None:
        self._panels.compare.show_pair(blocks)

    def _compared(self, compared: Compared) -> None:
        """The blocks are over; the checks, if any, come now."""
        self._clock.stop()
        panel = self._panels.compare
        panel.show_time_left(None)
        self._panels.status.clear_readings()
        assert self.record is not None
        self.record.blocks, self.record.ended_by = compared.blocks, compared.ended_by
        if compared.problem is None:
            self._recorder.end_comparison(self.record)
        result = self.record.result()
        if result is not None:
            self._peak_bytes = compared.peak_bytes
            panel.show_result(result, peak_bytes=self._peak_bytes)
        else:
            panel.show_activity(tr("No verdict: at least two pairs of blocks are needed."))
        if compared.problem is not None:
            self._messages.show_problem(compared.problem)

    def _ended(self, outcome: CheckedComparison | None) -> None:
        if not self._conducted:
            return  # another experiment's end
        self._conducted = False
        self._clock.stop()
        self._panels.runs.refresh()
        self._show_pins()
        if outcome is None or self.record is None or self._arms is None:
            self._panels.compare.clear()
            return
        compared, checks = outcome
        self.record.beside = checks_row(self._arms, checks)
        self._recorder.put_beside(self.record.uid, self.record.beside)
        a, b = (checks[arm] for arm in self._arms)
        self._checks = (a, b)
        self._panels.compare.show_checks(self._checks, self.record.names)
        if not compared.worker_usable and self._bridge.can_end_worker:
            self._bridge.end_worker()

    def _show_time_left(self) -> None:
        if self._first_block_s is not None:
            budget_s = self._panels.compare.budget.value()
            self._panels.compare.show_time_left(self._first_block_s + budget_s - time.monotonic())

    def _show_pins(self) -> None:
        self._panels.pins.show_pins(self._pins, self._intent.config)
