"""RunLog: what the runs of this session were and showed. The one place that window and command line read from."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from explorer.config import RunConfig
from explorer.results.environment import Environment
from explorer.results.label import label
from explorer.results.ring import Columns, SampleColumns
from explorer.results.sample import RESUMED, Sample, Segment
from explorer.results.statistics import SegmentSummary, Tally, summary, tally
from explorer.results.ways_out import NONE_KNOWN, WaysOut

Outcome = Literal["running", "completed", "stopped", "failed", "incomplete"]
"""incomplete: a stored run whose program ended before it did."""
_LONG_STEPS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A segment and the configuration that it ran with, its device resolved."""

    segment: Segment
    config: RunConfig
    figures: SegmentSummary | None = None
    """What its steps came to, where they did not come along: of a run from a CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that befell a run between two steps and changed none of its settings, such as a pause."""

    after_step: int
    """The last step before it; -1: before the first."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run failed, its parts told apart; the run's ``problem`` is all of it in one text."""

    what: str
    why: str
    remedy: str = ""
    """What to do; empty where nothing is known."""


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One run: what was asked for, where it ran, its segments, samples and text, and how it ended."""

    run_id: int
    config: RunConfig
    """As asked for; each segment has its own, as it ran."""
    reference: RunConfig
    """What labels compare with: the configuration of the session's first segment, as it ran."""
    environment: Environment | None = None
    """None until the worker has said what machine it is on."""
    segments: list[SegmentRecord] = field(default_factory=list)
    outcome: Outcome = "running"
    problem: str | None = None
    """Why it failed, fit to be read; None where it did not."""
    failure: Failure | None = None
    """The same in its parts; None as well where only the text is known."""
    ways_out: WaysOut = NONE_KNOWN
    """What would have avoided that."""
    marks: list[Mark] = field(default_factory=list)
    """Oldest first."""
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells the run from any other, on whatever machine."""
    started_at: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    """When it was begun: ISO 8601 with offset."""
    pieces: list[str] = field(default_factory=list)
    """The text as it came; ``text`` is all of it."""
    by_prompt: dict[int, list[str]] = field(default_factory=dict)
    """Of several prompts, each one's text as it came; told apart they are the text when the run ends."""
    notes: list[str] = field(default_factory=list)
    """What was seen of the machine that bears on the numbers, before the run and during it, oldest first."""
    capacity: int = 1_000_000
    columns: SampleColumns = field(init=False)
    _dropped: dict[int, Tally] = field(default_factory=dict)
    _summaries: dict[int, tuple[int, SegmentSummary]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = SampleColumns(capacity=self.capacity, dropping=self._keep_tally)

    @property
    def text(self) -> str:
        """What generation has shown, the prompt not included; of several prompts, see ``told_apart``."""
        if self.by_prompt and not self.pieces:
            return told_apart(self.config.prompts, self.texts)
        return "".join(self.pieces)

    @property
    def texts(self) -> tuple[str, ...]:
        """Of several prompts, what each one's sequence has shown so far; else ``text`` alone."""
        if not self.by_prompt:
            return ("".join(self.pieces),)
        return tuple("".join(self.by_prompt.get(row, [])) for row in range(len(self.config.prompts)))

    def summary(self, segment: int) -> SegmentSummary:
        """What the samples of segment ``segment`` come to so far; computed anew only after new samples.

        While a long segment goes on (50,000 samples), only after it grew by 1%.

        Raises:
            ValueError: the run has no such segment.
        """
        figures = self.segment(segment).figures
        if figures is not None:
            return figures
        rows = self.columns.rows_of(segment)
        dropped = self._dropped.get(segment)
        steps = rows.stop - rows.start + (dropped.steps if dropped else 0)
        cached = self._summaries.get(segment)
        spared = steps // 100 if self.outcome == "running" and steps > _LONG_STEPS else 0
        if cached is None or steps - cached[0] > spared:
            cached = self._summaries[segment] = (steps, summary(self.columns.columns(rows), dropped))
        return cached[1]

    def segment(self, index: int) -> SegmentRecord:
        """The segment with this index.

        Raises:
            ValueError: the run has no such segment.
        """
        for record in self.segments:
            if record.segment.index == index:
                return record
        raise ValueError(f"run {self.run_id} has no segment {index}; it has {len(self.segments)}")

    def abandoned(self, segment: int) -> bool:
        """Whether the run went back to before this segment, whose change had failed: its steps were done again.

        Raises:
            ValueError: the run has no such segment.
        """
        first_step = self.segment(segment).segment.first_step
        later = (record.segment for record in self.segments if record.segment.index > segment)
        return any(one.changes == (RESUMED,) and one.first_step <= first_step for one in later)

    def as_of_now(self) -> RunRecord:
        """A copy that shares nothing that changes, for another thread."""
        lists: dict[str, Any] = {name: list(getattr(self, name)) for name in ("segments", "pieces", "notes", "marks")}
        lists["by_prompt"] = {row: list(pieces) for row, pieces in self.by_prompt.items()}
        copy = dataclasses.replace(self, **lists, _dropped=dict(self._dropped), _summaries={})
        copy.columns.extend(self.columns.columns())
        return copy

    def label(self, segment: int, toggles: Mapping[str, str]) -> str:
        """What sets the segment apart, such as ``+ attention sdpa``.

        Args:
            segment: index of the segment.
            toggles: each toggle's first level by its name, in the order in which they are named.
        """
        return label(self.segment(segment).config, reference=self.reference, toggles=toggles)

    def _keep_tally(self, columns: Columns) -> None:
        for record in self.segments:
            index = record.segment.index
            gone = tally({name: column[columns["segment"] == index] for name, column in columns.items()})
            if gone.steps:
                self._dropped[index] = self._dropped.get(index, Tally()) + gone


def told_apart(prompts: Sequence[str], texts: Sequence[str]) -> str:
    """Each of ``texts`` after its prompt, under a line with its number."""
    return "\n\n".join(
        f"--- prompt {number}\n{prompt}{text}"
        for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True), start=1)
    )


class RunLog:
    """The runs of this session, oldest first. Not to be shared between threads.

    Whoever sends ``Start`` begins the run here; ``experiments.recording.record`` does the rest from events.
    """

    def __init__(self) -> None:
        self.environment: Environment | None = None
        self._runs: dict[int, RunRecord] = {}
        self._reference: RunConfig | None = None

    @property
    def runs(self) -> Sequence[RunRecord]:
        """Every run, oldest first."""
        return tuple(self._runs.values())

    def run(self, run_id: int) -> RunRecord:
        """The run with this number.

        Raises:
            ValueError: it was never begun.
        """
        if run_id not in self._runs:
            raise ValueError(f"run {run_id} was not begun; begun: {', '.join(map(str, self._runs)) or 'none'}")
        return self._runs[run_id]

    def begun(self, run_id: int) -> bool:
        """Whether there is a run with this number."""
        return run_id in self._runs

    def begin_run(self, run_id: int, config: RunConfig) -> RunRecord:
        """Begin a run of ``config`` in the environment known so far.

        Raises:
            ValueError: this number was begun before.
        """
        return self.add(RunRecord(run_id=run_id, config=config, reference=config, environment=self.environment))

    @property
    def next_id(self) -> int:
        """A number that no run has had here."""
        return max(self._runs, default=0) + 1

    def add(self, record: RunRecord) -> RunRecord:
        """Take in a run that was begun elsewhere, such as a stored one, and return it.

        Raises:
            ValueError: its number was begun before.
        """
        if record.run_id in self._runs:
            raise ValueError(f"run {record.run_id} was begun before; give each run its own number")
        self._runs[record.run_id] = record
        return record

    def forget(self, run_id: int) -> None:
        """Let go of this run, its samples included.

        Raises:
            ValueError: it was never begun.
        """
        del self._runs[self.run(run_id).run_id]

    def begin_segment(self, run_id: int, config: RunConfig, segment: Segment) -> None:
        """From ``segment.first_step`` on the run's samples are made with ``config``."""
        if self._reference is None:
            self._reference = config
        record = self.run(run_id)
        record.reference = self._reference
        record.segments.append(SegmentRecord(segment=segment, config=config))

    def append(self, run_id: int, samples: Sequence[Sample]) -> None:
        self.run(run_id).columns.append(samples)

    def append_text(self, run_id: int, text: str, *, row: int = 0) -> None:
        """Keep ``text``, which goes on from prompt ``row``."""
        record = self.run(run_id)
        several = record.config.workload == "generate" and len(record.config.prompts) > 1
        (record.by_prompt.setdefault(row, []) if several else record.pieces).append(text)

    def note(self, run_id: int, text: str) -> None:
        """Keep what was seen of the machine."""
        self.run(run_id).notes.append(text)

    def mark(self, run_id: int, text: str) -> None:
        """Keep that ``text`` befell the run after the last step that it has shown."""
        record = self.run(run_id)
        steps = record.columns.column("step")
        record.marks.append(Mark(after_step=int(steps[-1]) if len(steps) else -1, text=text))

    def end(
        self,
        run_id: int,
        outcome: Literal["completed", "stopped", "failed"],
        problem: str | None = None,
        ways_out: WaysOut = NONE_KNOWN,
        failure: Failure | None = None,
    ) -> None:
        """Close the run. The first outcome stays: a worker lost after the end of a run changes nothing."""
        record = self.run(run_id)
        if record.outcome == "running":
            if record.by_prompt:
                record.pieces.append(told_apart(record.config.prompts, record.texts))
            record.outcome, record.problem, record.ways_out, record.failure = outcome, problem, ways_out, failure

    def set_environment(self, environment: Environment) -> None:
        """Keep where runs run: those that follow, and those begun before the worker could say."""
        self.environment = environment
        for record in self._runs.values():
            if record.environment is None:
                record.environment = environment

    def label(self, run_id: int, segment: int, toggles: Mapping[str, str]) -> str:
        """See ``RunRecord.label``."""
        return self.run(run_id).label(segment, toggles)

    def summary(self, run_id: int, segment: int) -> SegmentSummary:
        """See ``RunRecord.summary``."""
        return self.run(run_id).summary(segment)
