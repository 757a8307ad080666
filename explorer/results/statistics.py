"""When warm-up is over, and what a segment's samples come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.results import memory
from explorer.results.energy import joules_per_token
from explorer.results.ring import PHASE_CODES, Columns
from explorer.results.sample import NAN, Phase

WINDOW_STEPS = 10
LARGEST_MOVE = 0.01
"""Warm-up is over when the median of the last ten steps moved by less than this against the ten before."""
WARMUP_LIMIT_STEPS = 60
WARMUP_LIMIT_S = 30.0


def has_settled(step_ms: Sequence[float]) -> bool:
    """Whether the median of the last ten step times moved by less than 1% against the ten before them."""
    if len(step_ms) < 2 * WINDOW_STEPS:
        return False
    before = statistics.median(step_ms[-2 * WINDOW_STEPS : -WINDOW_STEPS])
    return abs(statistics.median(step_ms[-WINDOW_STEPS:]) - before) < LARGEST_MOVE * before


class WarmUp:
    """Says of each step of a segment, fed one by one, which phase it belongs to.

    The first step is the compile step; then come warm-up steps until ``has_settled``, at most 60 of them or 30 s;
    all after that are steady.
    """

    def __init__(self) -> None:
        self._begun = False
        self._step_ms: list[float] = []
        self._over = False
        self.still_drifts = False
        """Whether the limit ended warm-up, not the rule."""

    def feed(self, step_ms: float) -> Phase:
        """The phase of the step that took ``step_ms`` milliseconds, the next one of the segment."""
        if not self._begun:
            self._begun = True
            return "compile"
        if self._over:
            return "steady"
        self._step_ms.append(step_ms)
        settled = has_settled(self._step_ms)
        limit = len(self._step_ms) >= WARMUP_LIMIT_STEPS or sum(self._step_ms) >= WARMUP_LIMIT_S * 1e3
        self._over = settled or limit
        self.still_drifts = limit and not settled
        return "warmup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The part of a summary that adds up over consecutive stretches of one segment."""

    steps: int = 0
    steady: int = 0
    warmup_ms: tuple[float, ...] = ()
    """Step times of the warm-up steps, oldest first; at most ``WARMUP_LIMIT_STEPS``."""
    compile_ms: float = NAN
    ttft_ms: float = NAN
    loss_first: float = NAN
    loss_last: float = NAN
    skipped_steps: int = 0
    synchronizations: int = 0
    peak_allocated_bytes: int = -1
    reserved_bytes: int = -1
    device_used_bytes: int = -1
    context_bytes: int = -1
    other_processes_bytes: int = -1
    driver_reserved_bytes: int = -1

    def __add__(self, later: Tally) -> Tally:
        if not later.steps:
            return self
        return Tally(
            steps=self.steps + later.steps,
            steady=self.steady + later.steady,
            warmup_ms=self.warmup_ms + later.warmup_ms,
            compile_ms=later.compile_ms if math.isnan(self.compile_ms) else self.compile_ms,
            ttft_ms=later.ttft_ms if math.isnan(self.ttft_ms) else self.ttft_ms,
            loss_first=self.loss_first if self.steps else later.loss_first,
            loss_last=later.loss_last,
            skipped_steps=self.skipped_steps + later.skipped_steps,
            synchronizations=self.synchronizations + later.synchronizations,
            peak_allocated_bytes=max(self.peak_allocated_bytes, later.peak_allocated_bytes),
            reserved_bytes=max(self.reserved_bytes, later.reserved_bytes),
            device_used_bytes=max(self.device_used_bytes, later.device_used_bytes),
            context_bytes=max(self.context_bytes, later.context_bytes),
            other_processes_bytes=max(self.other_processes_bytes, later.other_processes_bytes),
            driver_reserved_bytes=max(self.driver_reserved_bytes, later.driver_reserved_bytes),
        )


def tally(columns: Columns) -> Tally:
    """The tally of a stretch of samples of one segment. Memory is taken from the rows that count, and from prefill."""
    phase = columns["phase"]
    if not len(phase):
        return Tally()
    counted = _counted(phase)
    with_prefill = counted | (phase == PHASE_CODES["prefill"])

    def first_ms(wanted: Phase) -> float:
        rows = np.flatnonzero(phase == PHASE_CODES[wanted])
        return float(columns["step_ms"][rows[0]]) if len(rows) else NAN

    def largest(name: str) -> int:
        return int(columns[name][with_prefill].max(initial=-1))

    return Tally(
        steps=len(phase),
        steady=int(np.count_nonzero(phase == PHASE_CODES["steady"])),
        warmup_ms=tuple(columns["step_ms"][phase == PHASE_CODES["warmup"]].tolist()),
        compile_ms=first_ms("compile"),
        ttft_ms=first_ms("prefill"),
        loss_first=float(columns["loss"][0]),
        loss_last=float(columns["loss"][-1]),
        skipped_steps=int(np.count_nonzero(columns["skipped"])),
        synchronizations=int(columns["synchronizations"].sum()),
        peak_allocated_bytes=largest("peak_allocated_bytes"),
        reserved_bytes=largest("reserved_bytes"),
        device_used_bytes=largest("device_used_bytes"),
        context_bytes=largest("context_bytes"),
        other_processes_bytes=largest("other_processes_bytes"),
        driver_reserved_bytes=largest("driver_reserved_bytes"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """What a segment's samples come to. Not measured: NaN, or -1 for bytes.

    Times and rates are over ``n`` steps: the steady ones, or where there is none yet (``settled`` is False then)
    those after the first max(1, min(10, steps // 2)). In generation a step is a token of each sequence, and its
    time the inter-token latency.
    """

    steps: int
    """Samples of the segment, of whatever phase."""
    n: int
    """Samples that the times and rates are over."""
    warmup_steps: int
    """Samples left out: compile, prefill and warm-up."""
    settled: bool
    """Whether step times had settled by the rule before the first sample that counts."""
    compile_ms: float
    """Time of the first step, where modules load, kernels compile and autotuning runs."""
    ttft_ms: float
    """Generation: time to first token."""
    step_ms_median: float
    step_ms_p5: float
    step_ms_p95: float
    step_ms_p99: float
    tokens_per_s_median: float
    tokens_per_s_p5: float
    tokens_per_s_p95: float
    peak_allocated_bytes: int
    """Largest sum of live tensors within a step that counts, or within prefill; likewise the next five."""
    reserved_bytes: int
    device_used_bytes: int
    context_bytes: int
    other_processes_bytes: int
    driver_reserved_bytes: int
    memory_unexplained_bytes: int | None
    """``device_used_bytes`` without the allocator's, the context's and other processes' part: how far the parts, each
    measured, miss the whole. Median over the steps that count; negative where the parts are more; None: not known."""
    joules_per_token: float
    """By the device's energy counter over the steps that count; see ``energy.joules_per_token``."""
    loss_first: float
    """Loss of the segment's first sample, warm-up or not."""
    loss_last: float
    skipped_steps: int
    """fp16: steps that left the weights alone, over all samples."""
    synchronizations: int
    """Times that a step made the host wait for the device, over all samples."""


def summary(columns: Columns, dropped: Tally | None = None) -> SegmentSummary:
    """What the samples of one segment come to.

    Args:
        columns: of the segment's samples, by field of ``Sample``.
        dropped: the tally of earlier samples of the segment that are no longer held. Quantiles go without them.
    """
    total = (dropped or Tally()) + tally(columns)
    counted = _counted(columns["phase"])
    step_ms = columns["step_ms"][counted]
    n = total.steady or len(step_ms)
    times = quantiles(step_ms, (0.5, 0.05, 0.95, 0.99))
    rates = quantiles(tokens_per_s(columns)[counted], (0.5, 0.05, 0.95))
    return SegmentSummary(
        steps=total.steps,
        n=n,
        warmup_steps=total.steps - n,
        settled=total.steady > 0 and (not total.warmup_ms or has_settled(total.warmup_ms)),
        compile_ms=total.compile_ms,
        ttft_ms=total.ttft_ms,
        step_ms_median=times[0],
        step_ms_p5=times[1],
        step_ms_p95=times[2],
        step_ms_p99=times[3],
        tokens_per_s_median=rates[0],
        tokens_per_s_p5=rates[1],
        tokens_per_s_p95=rates[2],
        peak_allocated_bytes=total.peak_allocated_bytes,
        reserved_bytes=total.reserved_bytes,
        device_used_bytes=total.device_used_bytes,
        context_bytes=total.context_bytes,
        other_processes_bytes=total.other_processes_bytes,
        driver_reserved_bytes=total.driver_reserved_bytes,
        memory_unexplained_bytes=_median_bytes(memory.unexplained_bytes(columns)[counted]),
        joules_per_token=joules_per_token({name: column[counted] for name, column in columns.items()}),
        loss_first=total.loss_first,
        loss_last=total.loss_last,
        skipped_steps=total.skipped_steps,
        synchronizations=total.synchronizations,
    )


def quantiles(values: NDArray[Any], at: Sequence[float]) -> list[float]:
    """The quantiles of ``values`` (linear between order statistics), one a position of ``at``; NaN of nothing."""
    if not len(values):
        return [NAN] * len(at)
    return [float(value) for value in np.quantile(values, at)]


def tokens_per_s(columns: Columns) -> NDArray[np.float64]:
    """Tokens a second of each sample; NaN where no time was measured."""
    step_ms = columns["step_ms"]
    rates = np.full(len(step_ms), NAN)
    np.divide(columns["tokens"] * 1e3, step_ms, out=rates, where=step_ms > 0)
    return rates


def _median_bytes(sizes: NDArray[np.float64]) -> int | None:
    """The median of those that are known."""
    known = sizes[np.isfinite(sizes)]
    return round(float(np.median(known))) if len(known) else None


def _counted(phase: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows times and rates are over; see ``SegmentSummary``."""
    steady: NDArray[np.bool_] = phase == PHASE_CODES["steady"]
    if steady.any():
        return steady
    late = np.arange(len(phase)) >= max(1, min(10, len(phase) // 2))
    timed: NDArray[np.bool_] = late & (phase == PHASE_CODES["warmup"])
    return timed
