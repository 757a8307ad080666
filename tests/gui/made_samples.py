"""Runs made up for the panels: every number in them is known to the test."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.config import RunConfig
from explorer.results.log import RunLog
from explorer.results.sample import Phase, Sample, Segment

GIB = 2**30


def segment(index: int = 0, first_step: int = 0, *changes: str) -> Segment:
    return Segment(index=index, first_step=first_step, changes=changes, started_at="2026-01-02T03:04:05+00:00")


def steps(
    step_ms: Sequence[float],
    *,
    start_s: float = 0.0,
    first_step: int = 0,
    index: int = 0,
    first: Phase = "compile",
    tokens: int = 512,
    peak_bytes: int = 3 * GIB,
    trains: bool = True,
    **told: int,
) -> list[Sample]:
    """Samples with these step times, one after the other; all but the first are steady. ``told``: further fields."""
    made, now_s = [], start_s
    for i, ms in enumerate(step_ms):
        now_s += ms / 1e3
        made.append(
            Sample(
                step=first_step + i,
                segment=index,
                phase="steady" if i else first,
                time_s=now_s,
                tokens=tokens,
                step_ms=ms,
                loss=5.0 - 0.01 * i if trains else float("nan"),
                peak_allocated_bytes=peak_bytes,
                reserved_bytes=peak_bytes + GIB if peak_bytes >= 0 else -1,
                device_used_bytes=peak_bytes + 2 * GIB if peak_bytes >= 0 else GIB // 2,
                **told,
            )
        )
    return made


def begun(log: RunLog, config: RunConfig, run_id: int = 1) -> RunConfig:
    """Begin a run and its first segment in ``log``."""
    log.begin_run(run_id, config)
    log.begin_segment(run_id, config, segment())
    return config
