"""What one toggle was seen to do here: the newest two segments that differ in nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.results.log import RunRecord, SegmentRecord
from explorer.results.machine import machine
from explorer.results.statistics import SegmentSummary
from explorer.results.words import Say

NOT_YET = "not measured yet: flip it while a run goes, or compare (F6)"
SEEN = (
    "run {after} ({new}) against {before} ({old}): {speed:.2f} × tokens/s, {gib:+.2f} GiB in a step; one after the "
    "other, so compare (F6) for a verdict"
)
SPEED_SEEN = (
    "run {after} ({new}) against {before} ({old}): {speed:.2f} × tokens/s; one after the other, so compare (F6) for a "
    "verdict"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The later segment against the earlier."""

    before: str
    """As the table of runs numbers it; likewise ``after``."""
    after: str
    old: str
    """Level of the toggle; likewise ``new``."""
    new: str
    speed: float
    """tokens/s of the later over the earlier, medians."""
    bytes_more: float
    """By which a step's peak grew; NaN where it was not measured, as on a CPU."""

    def told(self, say: Say) -> str:
        """In one sentence, in the language that ``say`` speaks."""
        words = SEEN if math.isfinite(self.bytes_more) else SPEED_SEEN
        values = {"before": self.before, "after": self.after, "old": self.old, "new": self.new, "speed": self.speed}
        return say(words, **values, gib=self.bytes_more / 2**30)


def effect(runs: Sequence[RunRecord], toggle: str, first: str) -> Effect | None:
    """The newest that was seen of ``toggle``, whose first level is ``first``; None where nothing was.

    Two segments are held against each other when they ran on one machine, both have steps that count, and their
    configurations are equal but for the toggle's level.
    """
    seen = [(record, part, record.summary(part.segment.index)) for record in runs for part in record.segments]
    usable = [(record, part, summary) for record, part, summary in seen if math.isfinite(summary.tokens_per_s_median)]
    for place in range(len(usable) - 1, 0, -1):
        later, new, fast = usable[place]
        for record, old, slow in reversed(usable[:place]):
            if _differ_in(old, new, toggle) and machine(record) == machine(later):
                return Effect(
                    before=_number(record, old),
                    after=_number(later, new),
                    old=old.config.level(toggle) or first,
                    new=new.config.level(toggle) or first,
                    speed=fast.tokens_per_s_median / slow.tokens_per_s_median,
                    bytes_more=_more(slow, fast),
                )
    return None


def _differ_in(old: SegmentRecord, new: SegmentRecord, toggle: str) -> bool:
    levels = old.config.level(toggle), new.config.level(toggle)
    alike = old.config.with_level(toggle, None) == new.config.with_level(toggle, None)
    return alike and levels[0] != levels[1]


def _more(before: SegmentSummary, after: SegmentSummary) -> float:
    peaks = before.peak_allocated_bytes, after.peak_allocated_bytes
    return float(peaks[1] - peaks[0]) if min(peaks) >= 0 else math.nan


def _number(record: RunRecord, part: SegmentRecord) -> str:
    return f"{record.run_id}.{part.segment.index + 1}"
