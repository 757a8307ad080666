"""A model written as a file for serving, by the worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from explorer.experiments.single import INTERRUPTED_WITHIN_S
from explorer.experiments.steps import AskedToStop, FreshWorker, Order, Steps
from explorer.messages import Export, Exported, Problem, RunEnded, Stop, WorkerLost
from explorer.results.atomic import discard_parts


def export_model(command: Export, *, asked_to_stop: AskedToStop) -> Steps[Exported | Problem | None]:
    """Have ``command`` done; returns what was written, or why nothing was. None: it was stopped.

    A worker that does not hear a stop in time, as while it traces, makes room for another.
    """
    orders: Sequence[Order] = (command,)
    exported: Exported | None = None
    asked_at_s: float | None = None
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case Exported() if event.run_id == command.run_id:
                    exported = event
                case RunEnded() if event.run_id == command.run_id:
                    return exported if event.problem is None else event.problem
                case WorkerLost():
                    return Problem(what="The worker died", why=event.last_words or f"status {event.exit_code}")
                case _:
                    pass
        if asked_at_s is None and asked_to_stop():
            asked_at_s = time.monotonic()
            orders = (Stop(run_id=command.run_id),)
        elif asked_at_s is not None and time.monotonic() > asked_at_s + INTERRUPTED_WITHIN_S:
            yield (FreshWorker(),)
            discard_parts(Path(command.target))
            return None
