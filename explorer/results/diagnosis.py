"""What held a run up, from what was measured of it: in words, with the numbers that they rest on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from explorer.config import RunConfig, Workload
from explorer.results.flops import Utilization, utilization
from explorer.results.log import RunRecord
from explorer.results.loss_watch import LossWatch
from explorer.results.proof import Profile, short_name
from explorer.results.ring import PHASE_CODES, PHASES, Columns
from explorer.results.sample import Sample
from explorer.results.words import Say

Cause = Literal["failed", "loss", "growth", "data", "launch", "small", "memory", "compute", "device", "host", "waits"]
"""failed: the run's own problem. growth: memory that grows from step to step. small: kernels as short as their launch.
device, host: what timings alone tell of who waited for whom. waits: the host waits for the device."""

BUSY_SHARE = 0.8
"""A GPU that is busy for a smaller share of the time is held up."""
DATA_SHARE = 0.2
"""Of a step: waiting for a batch is a cause from here on."""
PRODUCT_SHARE = 0.5
"""Of the busy time: from here on arithmetic, not the moving of data, sets the pace."""
AHEAD_SHARE = 0.7
"""Python that is done with a step after a smaller share of it runs ahead of the GPU."""
SHORT_KERNEL_US = 10.0
"""About twice what launching one costs the host."""
FEW_ROWS = 100
"""Sequences that write text at once: below it each product reads its weights for less arithmetic than hides that."""
GROWTH_BYTES = 2**20
"""A step: smaller changes are the allocator's rounding."""
GROWTH_STEPS = 8
CURVE_STEPS = 60
MOST_ODD = 10_000
"""Samples around losses that are no numbers, and skipped steps, that are looked through, the oldest first."""

_PRODUCTS = re.compile(
    r"gemm|nvjet|cutlass|xmma|wgmma|flash|fmha|sdpa|attention|triton_tem_"
    r"|^aten::(?:mm|addmm|bmm|baddbmm|_scaled_dot_product\w+|mkldnn\w*|_mkl\w*)$",
    re.IGNORECASE,
)

WHY_NOT_ALL = "how busy the device was, and whether launching held it up: a CPU launches nothing"
NONE_PROFILED: Mapping[Workload, str] = {
    "train": "what filled the steps: none was profiled",
    "generate": "what filled the tokens: none was profiled",
}
WARMS_UP = "what sets the pace: the run still warms up"
CURES: Mapping[Cause, str] = {
    "failed": "",
    "loss": "",
    "growth": "Keep numbers, not tensors: loss.item() or loss.detach(), and no list of outputs.",
    "data": "Prepare batches ahead, in pinned memory and in another thread or process.",
    "launch": "Give the GPU more at once: a larger batch, fused kernels, or all launches of a step recorded as one.",
    "small": "No kernel can be made faster that is this short: take a larger batch or model, or fewer kernels.",
    "memory": "Move fewer bytes: fuse what is element by element, leave out what need not be written, use 16 bits.",
    "compute": "Take arithmetic that the card does faster: tensor cores in 16 bits, and no work done twice.",
    "device": "",
    "host": "",
    "waits": "Read numbers some steps later, or every hundredth step.",
}
"""By cause, what helps in general; empty where the finding says it itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was seen."""

    cause: Cause
    words: str
    """English, with {places} for ``values`` where there are any."""
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole sentence in English."""
        return self.words.format(**self.values) if self.values else self.words

    def told(self, say: Say) -> str:
        """The whole sentence in the language that ``say`` speaks."""
        return say(self.words, **self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What one segment of a run showed, the most important first."""

    findings: tuple[Finding, ...]
    unknown: tuple[str, ...] = ()
    """What could not be known here, and why."""
    norms: tuple[tuple[int, float], ...] = ()
    """(step, gradient norm) of the last steps before a loss that is no number, or before steps that changed nothing."""

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Of the findings, in their order."""
        return tuple(finding.cause for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a segment came to. Medians over the steps that count; NaN where nothing was measured."""

    device: Literal["cuda", "cpu"]
    config: RunConfig
    step_ms: float
    host_ms: float
    data_wait_ms: float
    synchronizations: float
    """A step."""
    done: Utilization
    grown_bytes: float = math.nan
    """By which a step's peak grew from step to step."""


def diagnosis(
    record: RunRecord, profile: Profile | None = None, *, segment: int | None = None, newest: int | None = None
) -> Diagnosis:
    """What segment ``segment`` of ``record`` shows, or its last one.

    Args:
        profile: of a step of the same configuration, if one was taken.
        newest: look at this many of the segment's steps, the last ones: cheap enough while a run goes on.

    Raises:
        ValueError: the run has no such segment.
    """
    findings = [] if record.problem is None else [Finding(cause="failed", words=record.problem)]
    if not record.segments:
        return Diagnosis(findings=tuple(findings))
    part = record.segments[-1] if segment is None else record.segment(segment)
    index = part.segment.index
    rows = record.columns.rows_of(index)
    columns = record.columns.columns(rows)
    odd = _odd(columns) if part.config.workload == "train" else []  # no token has a loss
    losses = [Finding(cause="loss", words=line) for line in LossWatch().look(odd, part.config)]
    findings += losses
    rate = record.summary(index).tokens_per_s_median
    latest = (
        columns if newest is None else record.columns.columns(slice(max(rows.start, rows.stop - newest), rows.stop))
    )
    seen = figures(latest, part.config, utilization(part.segment, rate, _device_name(record, part.config)))
    unknown: list[str] = []
    if record.outcome == "running" and not (latest["phase"] == PHASE_CODES["steady"]).any():
        unknown.append(WARMS_UP)
    elif math.isfinite(seen.step_ms):
        findings += growth(seen)
        found, unknown = pace(seen, profile)
        findings += found
    return Diagnosis(findings=tuple(findings), unknown=tuple(unknown), norms=_norms(columns) if losses else ())


def figures(columns: Columns, config: RunConfig, done: Utilization) -> Figures:
    """What the samples of one segment come to."""
    counted = _counted(columns)
    return Figures(
        device="cpu" if config.device == "cpu" else "cuda",
        config=config,
        step_ms=_median(columns["step_ms"][counted]),
        host_ms=_median(columns["host_ms"][counted]),
        data_wait_ms=_median(columns["data_wait_ms"][counted]),
        synchronizations=float(columns["synchronizations"][counted].mean()) if counted.any() else math.nan,
        done=done,
        # A cache of keys and values grows with each token, and should.
        grown_bytes=_growth(columns["peak_allocated_bytes"][counted]) if config.workload == "train" else math.nan,
    )


def growth(seen: Figures) -> list[Finding]:
    """Whether memory grows from step to step."""
    if not seen.grown_bytes >= GROWTH_BYTES:
        return []
    words = "memory grew by {mib:.1f} MiB a step: something keeps tensors of each step alive"
    return [Finding(cause="growth", words=words, values={"mib": seen.grown_bytes / 2**20})]


def pace(seen: Figures, profile: Profile | None) -> tuple[list[Finding], list[str]]:
    """What set the pace of the steps, and what of that is not known."""
    data, waits = _data(seen, profile), _waits(seen)
    unknown = []
    if profile is None:
        unknown.append(NONE_PROFILED[seen.config.workload])
        found = _by_timings(seen) if seen.device == "cuda" else []
    else:
        found = [] if data else _by_profile(seen, profile)
    if seen.device == "cpu":
        unknown.append(WHY_NOT_ALL)
    held_up = not any(finding.cause in ("memory", "compute", "device") for finding in found)
    return ([*data, *waits, *found] if held_up else [*found, *data, *waits]), unknown


def _data(seen: Figures, profile: Profile | None) -> list[Finding]:
    share = seen.data_wait_ms / seen.step_ms
    if not share >= DATA_SHARE:
        return []
    words = "data-bound: a step waited {waited_ms:.1f} of {step_ms:.1f} ms for its batch ({share:.0%})"
    values = {"waited_ms": seen.data_wait_ms, "step_ms": seen.step_ms, "share": share}
    alone = [Finding(cause="data", words=words, values=values)]
    if seen.device == "cpu":
        return alone
    if profile is None:
        # A copy from pageable memory waits for all work before it: then the wait alone proves nothing.
        return [] if seen.synchronizations else alone
    if profile.busy_share >= BUSY_SHARE or share < (1 - profile.busy_share) / 2:
        return []
    words = (
        "data-bound: a step waited {waited_ms:.1f} of {step_ms:.1f} ms for its batch ({share:.0%}), and the GPU was "
        "busy {busy:.0%} of the time"
    )
    return [Finding(cause="data", words=words, values={**values, "busy": profile.busy_share})]


def _waits(seen: Figures) -> list[Finding]:
    if seen.device == "cpu" or not seen.synchronizations >= 0.5:
        return []
    often = seen.synchronizations >= 1.5
    values = {"times": seen.synchronizations} if often else {}
    return [Finding(cause="waits", words=WAITS[seen.config.workload, often], values=values)]


WAITS: Mapping[tuple[Workload, bool], str] = {
    ("train", True): "each step made Python wait for the GPU {times:.2g} times, so that it could not launch ahead",
    ("train", False): "each step made Python wait for the GPU once, so that it could not launch ahead",
    ("generate", True): "each token made Python wait for the GPU {times:.2g} times, so that it could not launch ahead",
    ("generate", False): "each token made Python wait for the GPU once, so that it could not launch ahead",
}
"""By workload, and whether it waited more than once."""


def _by_timings(seen: Figures) -> list[Finding]:
    host_ms = seen.host_ms + seen.data_wait_ms if math.isfinite(seen.data_wait_ms) else seen.host_ms
    if seen.synchronizations or not math.isfinite(host_ms):
        return []
    values = {"host_ms": host_ms, "step_ms": seen.step_ms}
    if host_ms < AHEAD_SHARE * seen.step_ms:
        words = "the GPU set the pace: Python was done with a step after {host_ms:.1f} of {step_ms:.1f} ms"
        return [Finding(cause="device", words=words, values=values)]
    words = "Python took {host_ms:.1f} of {step_ms:.1f} ms to submit a step: the GPU may have waited for it"
    return [Finding(cause="host", words=words, values=values)]


def _by_profile(seen: Figures, profile: Profile) -> list[Finding]:
    total_us = sum(kernel.total_us for kernel in profile.kernels)
    if not total_us:
        return []
    others = [kernel for kernel in profile.kernels if not _PRODUCTS.search(kernel.name)]
    share = 1 - sum(kernel.total_us for kernel in others) / total_us
    values: dict[str, object] = {"share": share}
    if others:
        values |= {"kernel": short_name(others[0].name), "ms": others[0].total_us / 1e3}
    moves_data = share < PRODUCT_SHARE
    if profile.launches is None:
        if moves_data:
            words = (
                "memory-bound: matrix products took {share:.0%} of the time; the rest moves data, most in {kernel} "
                "({ms:.2f} ms)"
            )
            return [Finding(cause="memory", words=words, values=values)]
        words = "compute-bound: matrix products took {share:.0%} of the time"
        return [Finding(cause="compute", words=words, values=values)]
    values["busy"] = profile.busy_share
    if profile.busy_share < BUSY_SHARE:
        return _launch(profile)
    if profile.workload == "generate" and seen.config.batch < FEW_ROWS:
        words = (
            "memory-bound: the GPU was busy {busy:.0%} of the time, and each token reads every weight for {rows} rows "
            "only"
        )
        return [Finding(cause="memory", words=words, values={**values, "rows": seen.config.batch})]
    if moves_data:
        words = (
            "memory-bound: the GPU was busy {busy:.0%} of the time, only {share:.0%} of that with matrix products; "
            "the rest moves data, most in {kernel} ({ms:.2f} ms)"
        )
        return [Finding(cause="memory", words=words, values=values)]
    if not math.isfinite(seen.done.measured):
        words = "compute-bound: the GPU was busy {busy:.0%} of the time, {share:.0%} of that with matrix products"
        return [Finding(cause="compute", words=words, values=values)]
    words = (
        "compute-bound: the GPU was busy {busy:.0%} of the time, {share:.0%} of that with matrix products, at "
        "{measured:.0%} of what it was seen to do at best"
    )
    return [Finding(cause="compute", words=words, values={**values, "measured": seen.done.measured})]


def _launch(profile: Profile) -> list[Finding]:
    words = (
        "launch-bound: the GPU was busy {busy:.0%} of the time; in the rest it waited for Python, which made "
        "{launches} launches in {step_ms:.2f} ms"
    )
    values = {"busy": profile.busy_share, "launches": profile.launches, "step_ms": profile.step_ms}
    findings = [Finding(cause="launch", words=words, values=values)]
    count = sum(kernel.count for kernel in profile.kernels)
    mean_us = profile.busy_ms * 1e3 / count
    if mean_us < SHORT_KERNEL_US:
        words = "too small for this GPU: a kernel ran {us:.1f} µs on average, about as long as launching it takes"
        findings.append(Finding(cause="small", words=words, values={"us": mean_us}))
    return findings


def _device_name(record: RunRecord, config: RunConfig) -> str | None:
    if record.environment is None:
        return None
    return next((d.name for d in record.environment.devices if d.id == config.device), None)


def _counted(columns: Columns) -> NDArray[np.bool_]:
    """The steady steps, or where there is none all after the first."""
    steady: NDArray[np.bool_] = columns["phase"] == PHASE_CODES["steady"]
    if steady.any():
        return steady
    later: NDArray[np.bool_] = columns["phase"] == PHASE_CODES["warmup"]
    return later


def _median(values: NDArray[Any]) -> float:
    measured = values[np.isfinite(values)]
    return float(np.median(measured)) if len(measured) else math.nan


def _growth(peak_bytes: NDArray[Any]) -> float:
    """Bytes a step by which the peak grew in each quarter of the steps, by the medians of the quarters; else NaN."""
    if len(peak_bytes) < GROWTH_STEPS or (peak_bytes < 0).any():
        return math.nan
    quarters = np.array_split(peak_bytes, 4)
    medians = np.array([np.median(quarter) for quarter in quarters])
    if not (np.diff(medians) > 0).all():
        return math.nan
    # From the middle of the first quarter to that of the last, which of a length that 4 does not divide is shorter.
    steps = len(peak_bytes) - (len(quarters[0]) + len(quarters[-1])) / 2
    return float(medians[-1] - medians[0]) / steps


def _odd(columns: Columns) -> list[Sample]:
    """The samples whose loss is no number or that were skipped, and their neighbours: what ``LossWatch`` looks at."""
    odd: NDArray[np.bool_] = ~np.isfinite(columns["loss"]) | columns["skipped"]
    near = odd.copy()
    near[:-1] |= odd[1:]
    near[1:] |= odd[:-1]
    rows = np.flatnonzero(near)[:MOST_ODD]
    names = ("step", "segment", "time_s", "tokens", "step_ms", "loss", "grad_norm", "loss_scale", "skipped")
    values = zip(*(columns[name][rows].tolist() for name in names), strict=True)
    phases = (PHASES[code] for code in columns["phase"][rows])
    return [
        Sample(phase=phase, **dict(zip(names, row, strict=True))) for phase, row in zip(phases, values, strict=True)
    ]


def _norms(columns: Columns) -> tuple[tuple[int, float], ...]:
    """Gradient norms up to the first loss that is no number, or the first that there are where all are."""
    odd = ~np.isfinite(columns["loss"]) | columns["skipped"]
    end = int(np.argmax(odd)) + 1 if odd.any() else len(odd)
    end = min(len(odd), max(end, CURVE_STEPS))
    rows = slice(max(0, end - CURVE_STEPS), end)
    return tuple(zip(columns["step"][rows].tolist(), columns["grad_norm"][rows].tolist(), strict=True))
