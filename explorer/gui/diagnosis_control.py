"""What a run showed, put in words for the panel; and what the person does about it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from explorer.config import LIMITS, RunConfig
from explorer.experiments.look_closer import look_closer
from explorer.gui.bridge import Bridge
from explorer.gui.diagnosis_panel import Card, DiagnosisPanel, Offer, Shown
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.runs_table import RunsTable
from explorer.gui.toggle_row import tooltip
from explorer.messages import Problem, Progress, RunEnded, Verify
from explorer.optimizations.cures import MOST, answers, obstacle
from explorer.optimizations.registry import baseline_levels, by_name, there_is, with_level
from explorer.results.diagnosis import CURES, Diagnosis, Finding, diagnosis
from explorer.results.environment import DeviceInfo
from explorer.results.log import RunLog, RunRecord, SegmentRecord
from explorer.results.proof import Profile
from explorer.results.ways_out import WaysOut

EVERY_S = 1.0
"""Numbers that change faster cannot be read."""
NEWEST = 1000
"""Steps that are looked at while a run goes on: a look takes less than a millisecond."""
BLOCKED = 2
"""Toggles of a finding that cannot be flipped and are shown for all that, at most."""
Change = Callable[[RunConfig], RunConfig]
LOWER = 10
"""By which a learning rate that was too high is divided."""


class DiagnosisControl(QObject):
    """Shows the newest run, or the row that is selected in the table, and takes the panel's wishes."""

    changed = Signal()
    """Whether a step can be looked at closer may have changed."""

    def __init__(
        self,
        panel: DiagnosisPanel,
        intent: Intent,
        bridge: Bridge,
        runs: RunsTable,
        messages: MessageBar,
        log: RunLog,
        *,
        device: Callable[[], DeviceInfo | None],
        show_panel: Callable[[], None],
    ) -> None:
        """``device``: what the settings of the moment would run on."""
        super().__init__(messages)
        self._panel = panel
        self._intent = intent
        self._bridge = bridge
        self._runs = runs
        self._messages = messages
        self._log = log
        self._device = device
        self._show_panel = show_panel
        self._newest: int | None = None
        self._chosen: tuple[int, int] | None = None
        """The row that was selected since the newest run began."""
        self._profiles: dict[RunConfig, Profile] = {}
        """By the configuration as it ran, its device resolved."""
        self._looking: Verify | None = None
        self._activity = ""
        self._offers: dict[str, Change] = {}
        self._looked_at_s = 0.0
        panel.offer_taken.connect(self._take)
        panel.look_wanted.connect(self.look_closer)
        panel.cancel_wanted.connect(bridge.stop)
        panel.appeared.connect(self.refresh)
        runs.selectionModel().selectionChanged.connect(self._choose)
        intent.changed.connect(self.refresh)
        bridge.worker_ready.connect(self.refresh)
        bridge.state_changed.connect(self.refresh)
        bridge.run_started.connect(self._started)
        bridge.segment_started.connect(self.refresh)
        bridge.samples.connect(self._samples)
        bridge.run_ended.connect(self._run_ended)
        bridge.progress.connect(self._progress)
        bridge.experiment_started.connect(self.refresh)
        bridge.experiment_ended.connect(self._ended)

    def look_closer(self) -> None:
        """Profile one step of what the panel shows, or say why not."""
        why = self.obstacle()
        part = self._part()
        if why or part is None:
            self._messages.show_message(why, severity="warning")
            return
        self._show_panel()
        command = Verify(run_id=self._bridge.reserve_id(), proof=(part.config,))
        starting = self._bridge.state != "ready"
        self._looking = command
        self._activity = tr("Waiting for the worker to start…") if starting else tr("Starting a process to profile in…")
        self._messages.clear()
        self._bridge.conduct(look_closer(command, asked_to_stop=self._bridge.asked_to_stop))
        self.refresh()

    def obstacle(self) -> str:
        """Why no step can be looked at closer now; empty where one can."""
        if self._part() is None:
            return tr("Start a run first.")
        if self._bridge.going:
            return tr("Stop the run first: a profile needs the device to itself.")
        return ""

    def reword(self) -> None:
        """Show all in the language of the moment."""
        self.refresh()

    def show_run(self, run_id: int) -> None:
        """Show a run that is not going, such as a stored one, as if it had just ended."""
        self._started(run_id, self._log.run(run_id).config)

    def refresh(self, *_: object) -> None:
        """Look at the run again, where that can be seen."""
        looking = self._looking is not None
        self._panel.show_look(obstacle=self.obstacle(), looking=looking, progress=self._activity)
        self.changed.emit()
        # Of docks behind each other each counts as visible.
        if self._panel.visibleRegion().isEmpty():
            return
        self._looked_at_s = time.monotonic()
        record = self._record()
        self._panel.show_diagnosis(None if record is None else self._shown(record))

    # ---- from the person

    def _take(self, name: str) -> None:
        self._intent.replace(self._offers[name](self._intent.config))

    def _choose(self, *_: object) -> None:
        selected = self._runs.selected()
        self._chosen = selected[0] if len(selected) == 1 else None
        self.refresh()

    # ---- from the worker

    def _started(self, run_id: int, _config: RunConfig) -> None:
        self._newest, self._chosen = run_id, None
        self.refresh()

    def _samples(self, run_id: int, _samples: object) -> None:
        if run_id == self._newest and time.monotonic() - self._looked_at_s >= EVERY_S:
            self.refresh()

    def _run_ended(self, event: RunEnded) -> None:
        self.refresh()

    def _progress(self, event: Progress) -> None:
        if self._looking is not None and event.run_id == self._looking.run_id:
            self._activity = f"{from_below(event.activity)}…"
            self.refresh()

    def _ended(self, outcome: object) -> None:
        looked, self._looking = self._looking, None
        if looked is not None:
            match outcome:
                case Profile():
                    self._profiles[looked.proof[0]] = outcome
                case Problem():
                    self._messages.show_problem(outcome)
                case _:
                    pass  # it was cancelled
        self.refresh()

    # ---- what is shown

    def _record(self) -> RunRecord | None:
        run_id = self._newest if self._chosen is None else self._chosen[0]
        return self._log.run(run_id) if run_id is not None and self._log.begun(run_id) else None

    def _part(self) -> SegmentRecord | None:
        record = self._record()
        if record is None or not record.segments:
            return None
        return record.segments[-1] if self._chosen is None else record.segment(self._chosen[1])

    def _shown(self, record: RunRecord) -> Shown:
        part = self._part()
        going = record.outcome == "running"
        profile = None if part is None else self._profiles.get(part.config)
        segment = None if part is None else part.segment.index
        found = diagnosis(record, profile, segment=segment, newest=NEWEST if going else None)
        self._offers = {}
        cards = tuple(self._card(finding, found, record, part) for finding in found.findings)
        if part is None:
            heading = tr("Run {run}", run=record.run_id)
        else:
            label = from_below(record.label(part.segment.index, baseline_levels()))
            heading = tr("Run {run}: {label}", run=f"{record.run_id}.{part.segment.index + 1}", label=label)
        if going:
            heading = tr("{run}, so far", run=heading)
        unknown = [tr("Not known: {what}.", what=tr(words)) for words in found.unknown]
        if not cards and part is not None and not going:
            unknown.insert(0, tr("Nothing was found that held it up."))
        if (
            profile is None
            and part is not None
            and not going
            and math.isfinite(record.summary(part.segment.index).step_ms_median)
        ):
            unknown.append(tr("Look closer profiles one step, and says more."))
        return Shown(heading=heading, cards=cards, unknown="\n".join(unknown))

    def _card(self, finding: Finding, found: Diagnosis, record: RunRecord, part: SegmentRecord | None) -> Card:
        failure = record.failure if finding.cause == "failed" else None
        why = ""
        if failure is not None:
            text, why, cure = (from_below(part) for part in (failure.what, failure.why, failure.remedy))
        else:
            text = finding.told(tr) if finding.values else from_below(finding.words)
            cure = tr(CURES[finding.cause])
        ran = record.config if part is None else part.config
        offers = self._for_failure(record.ways_out) if finding.cause == "failed" else self._for_cause(finding, ran)
        norms = found.norms if finding.cause == "loss" else ()
        text, why = _sentence(text), _sentence(why)
        return Card(cause=finding.cause, text=text, why=why, cure=cure, offers=tuple(offers), norms=norms)

    def _for_failure(self, ways: WaysOut) -> list[Offer]:
        offers = []
        batch = ways.batch
        if batch is not None:
            words = tr("Batch: {count}", count=batch)
            offers.append(self._offer("batch", words, lambda wanted: dataclasses.replace(wanted, batch=batch)))
        return [*offers, *(self._toggle(toggle, level) for toggle, level in ways.flips if there_is(toggle, level))]

    def _for_cause(self, finding: Finding, ran: RunConfig) -> list[Offer]:
        device = self._device()
        if device is None:
            return []
        answered = [cure for cure in answers(finding.cause, ran, device) if cure.toggle not in self._offers]
        runs = [cure for cure in answered if not cure.reason][:MOST]
        blocked = [cure for cure in answered if cure.reason][:BLOCKED]
        offers = [self._toggle(cure.toggle, cure.level) for cure in (*runs, *blocked)]
        if finding.cause == "loss" and "lr" not in self._offers and ran.lr / LOWER > LIMITS["lr"][0]:
            lower = ran.lr / LOWER
            words = tr("Learning rate: {rate:.3g}", rate=lower)
            offers.append(self._offer("lr", words, lambda wanted: dataclasses.replace(wanted, lr=lower)))
        return offers

    def _toggle(self, toggle: str, level: str) -> Offer:
        """To be flipped in the settings of the moment, whatever ran."""
        optimization, config, device = by_name(toggle), self._intent.config, self._device()
        words = tr("{toggle}: {level}", toggle=tr(optimization.label), level=tr(optimization.level(level).label))
        if config.workload not in optimization.workloads:
            why = tr("The settings of the moment are of another workload.")
        else:
            why = "" if device is None else from_below(obstacle(config, toggle, level, device))
        return self._offer(
            toggle,
            words,
            lambda wanted: with_level(wanted, toggle, level),
            tip=tooltip(optimization),
            obstacle=why,
        )

    def _offer(self, name: str, words: str, change: Change, *, tip: str = "", obstacle: str = "") -> Offer:
        self._offers[name] = change
        if change(self._intent.config) == self._intent.config:
            obstacle = (
                tr("It is set: the run goes on with it.")
                if self._bridge.running is not None
                else tr("It is set: start a run (F5) to see what it does.")
            )
        return Offer(name=name, words=words, tip=tip or words, obstacle=_sentence(obstacle))


def _sentence(words: str) -> str:
    """With a capital and an end."""
    words = words[:1].upper() + words[1:]
    return words if not words or words[-1] in ".。！!?？" else tr("{sentence}.", sentence=words)
