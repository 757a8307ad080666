"""A profile of one configuration's steps, taken by the worker in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import Problem, Profiled, ProfileSteps, RunEnded, StepsProfiled, Stop, Verify, WorkerLost
from explorer.results.proof import Profile
from explorer.results.step_profile import StepProfile


def look_closer(
    command: Verify | ProfileSteps, *, asked_to_stop: AskedToStop
) -> Steps[Profile | StepProfile | Problem | None]:
    """Have the one profile of ``command`` taken; returns what was found, or why nothing was. None: it was stopped."""
    orders: Sequence[Order] = (command,)
    found: Profile | StepProfile | Problem | None = None
    stopping = False
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case Profiled() | StepsProfiled() if event.run_id == command.run_id:
                    found = event.found
                case RunEnded() if event.run_id == command.run_id:
                    return found if event.problem is None else event.problem
                case WorkerLost():
                    return Problem(what="The worker died", why=event.last_words or f"status {event.exit_code}")
                case _:
                    pass
        if asked_to_stop() and not stopping:
            stopping = True
            orders = (Stop(run_id=command.run_id),)
