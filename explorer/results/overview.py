"""Several runs side by side: what each reached, how that stands to the first, and which of them nothing beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.results.log import RunLog
from explorer.results.machine import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One segment. Not measured: NaN."""

    run_id: int
    segment: int
    label: str
    workload: str
    machine: str | None
    tokens_per_s: float
    """Median over the steps that count; likewise the next two, which nine in ten lie between."""
    tokens_per_s_p5: float
    tokens_per_s_p95: float
    settled: bool
    memory_gib: float
    """Largest sum of live tensors within a step; where that is not known, on the CPU, the worker's resident memory."""
    loss: float
    """Of the last step."""

    @property
    def name(self) -> str:
        """As the table of runs numbers it."""
        return f"{self.run_id}.{self.segment + 1}"


def entry(log: RunLog, run_id: int, segment: int, *, toggles: Mapping[str, str]) -> Entry:
    """What segment ``segment`` of run ``run_id`` has reached so far.

    Args:
        toggles: each toggle's first level by its name, in the order in which labels name them.
    Raises:
        ValueError: no such run or segment.
    """
    record = log.run(run_id)
    summary = record.summary(segment)
    peak = summary.peak_allocated_bytes
    memory_bytes = peak if peak >= 0 else summary.device_used_bytes
    return Entry(
        run_id=run_id,
        segment=segment,
        label=record.label(segment, toggles),
        workload=record.segment(segment).config.workload,
        machine=machine(record),
        tokens_per_s=summary.tokens_per_s_median,
        tokens_per_s_p5=summary.tokens_per_s_p5,
        tokens_per_s_p95=summary.tokens_per_s_p95,
        settled=summary.settled,
        memory_gib=memory_bytes / 2**30 if memory_bytes >= 0 else math.nan,
        loss=summary.loss_last,
    )


def ratio(value: float, reference: float) -> float:
    """``value`` over ``reference``; NaN where one of them was not measured or the reference is 0."""
    return value / reference if reference else math.nan


def pareto(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Those that no other beats in speed and memory at once, from the least memory to the most.

    Of two that are equal in both the first stays. What was not measured in both is left out.
    """
    known = [e for e in entries if math.isfinite(e.tokens_per_s) and math.isfinite(e.memory_gib)]
    front: list[Entry] = []
    for one in sorted(known, key=lambda e: (e.memory_gib, -e.tokens_per_s)):
        if not front or one.tokens_per_s > front[-1].tokens_per_s:
            front.append(one)
    return front


def not_alike(entries: Sequence[Entry]) -> Sequence[str]:
    """In what the entries differ so that their figures cannot be held against each other: workload, machine."""
    found = []
    if len({e.workload for e in entries}) > 1:
        found.append("workload")
    if len({e.machine for e in entries if e.machine is not None}) > 1:
        found.append("machine")
    return found
