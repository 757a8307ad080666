"""From the worker's events to results: the one place, for the window and the command line alike."""

from __future__ import annotations

from typing import assert_never

from explorer.messages import (
    Benched,
    BlockEnded,
    CacheEmptied,
    Event,
    Exported,
    MemorySummary,
    Note,
    ParityChecked,
    Parked,
    Profiled,
    Progress,
    Refused,
    RunEnded,
    Samples,
    Saved,
    SegmentStarted,
    StepsProfiled,
    Text,
    WorkerLost,
    WorkerReady,
)
from explorer.results.log import Failure, RunLog


def record(log: RunLog, event: Event) -> None:
    """Keep in ``log`` what ``event`` says.

    Raises:
        ValueError: the event has samples of a run that ``log.begin_run`` does not know: begin it when the command is
            sent.
    """
    match event:
        case WorkerReady():
            log.set_environment(event.environment)
        case SegmentStarted():
            log.begin_segment(event.run_id, event.config, event.segment)
        case Samples():
            log.append(event.run_id, event.samples)
        case Note() if log.begun(event.run_id):
            log.note(event.run_id, event.text)
        case Text():
            log.append_text(event.run_id, event.told, row=event.row)
        case RunEnded() if log.begun(event.run_id):
            problem = event.problem
            if problem is None:
                log.end(event.run_id, event.outcome)
            else:
                parts = Failure(what=problem.what, why=problem.why, remedy=problem.remedy)
                log.end(event.run_id, event.outcome, str(problem), problem.ways_out, parts)
        case WorkerLost():
            # It can no longer say that its run ended.
            for run in log.runs:
                if run.outcome == "running":
                    log.end(run.run_id, "failed", _lost(event))
        case RunEnded() | Note():
            pass  # Of checks, which are no runs.
        case Progress() | Parked() | Refused() | Saved() | Exported() | BlockEnded():
            pass  # Passing states: shown, not kept.
        case MemorySummary() | CacheEmptied():
            pass  # Of the process, not of a run.
        case ParityChecked() | Profiled() | Benched() | StepsProfiled():
            pass  # Whoever asked keeps them.
        case _:
            assert_never(event)


def _lost(event: WorkerLost) -> str:
    return f"The worker process ended by itself{event.how}. {event.last_words}".strip()
