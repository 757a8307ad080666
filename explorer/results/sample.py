"""Sample: what one step (of training) or one token (of generation) showed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

NAN = math.nan

Phase = Literal["compile", "warmup", "steady", "prefill"]
"""compile: the first step of a segment (module load, JIT, autotune). warmup: until step times settle.
steady: what statistics are made of. prefill: the prompt's pass in generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One step. Floats that were not measured are NaN; byte counts not measured are -1."""

    step: int
    """Counts from 0 over the whole run, across segments."""
    segment: int
    phase: Phase
    time_s: float
    """Seconds since the run's first step began (by events on CUDA, so without synchronisation)."""
    tokens: int
    """Tokens that this step processed (batch x seq) or produced (batch)."""
    step_ms: float
    """From the end of the step before to the end of this one, on the device."""
    host_ms: float = NAN
    """Time that Python took to submit the step."""
    data_wait_ms: float = NAN
    """Time that the step waited for its batch."""
    loss: float = NAN
    grad_norm: float = NAN
    """Before clipping, and unscaled."""
    loss_scale: float = NAN
    block: int = -1
    """In a comparison, the pair of blocks that the step belongs to; -1 outside of blocks."""
    skipped: bool = False
    """fp16: the step found an infinite gradient and left the weights alone."""
    synchronizations: int = 0
    """Times that the step made the host wait for the device (fp16's scaler without a fused optimizer: 1; a loss read at
    once: 1; a batch copied from pageable memory: 1)."""
    peak_allocated_bytes: int = -1
    """Largest sum of live tensors within the step."""
    reserved_bytes: int = -1
    """What the allocator held from the device, its cache included."""
    device_used_bytes: int = -1
    """Memory in use on the whole device, by whomever, without the driver's reserve; on the CPU the worker's resident
    memory."""
    context_bytes: int = -1
    """What the worker's process held of the device beyond its allocator: CUDA's context, code, workspaces."""
    other_processes_bytes: int = -1
    driver_reserved_bytes: int = -1
    """What the driver keeps for itself; not part of ``device_used_bytes``."""
    power_w: float = NAN
    temperature_c: float = NAN
    sm_clock_mhz: float = NAN
    energy_j: float = NAN
    """The device's energy counter as of ``read_at_s``; only differences mean anything."""
    read_at_s: float = NAN
    """When energy, power, clock and the device's memory were read, by the worker's clock; likewise."""

    @property
    def tokens_per_s(self) -> float:
        """tokens / step_ms, in tokens a second."""
        return self.tokens / self.step_ms * 1e3 if self.step_ms > 0 else NAN


RESUMED = "resumed"
"""The change with which a segment begins that goes on from before a change that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a run with one configuration; a setting changed live begins the next."""

    index: int
    first_step: int
    changes: tuple[str, ...]
    """What differs from the segment before, as ``name old -> new``; empty for the first."""
    started_at: str
    """ISO 8601 with offset."""
    flop_per_token: float | None = None
    """Of training, by ``flops.FORMULA``; None in generation."""
    ceiling_tflop_per_s: float | None = None
    """The 16-bit matrix product that this device was seen to do; None where that was not measured, as on a CPU."""
