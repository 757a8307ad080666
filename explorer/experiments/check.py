"""What a comparison does not time: parity and proof of its configurations, from the worker's events to results."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence

from explorer.config import RunConfig
from explorer.experiments.single import STOP_WITHIN_S
from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import ParityChecked, Problem, Profiled, RunEnded, Stop, Verify, WorkerLost
from explorer.optimizations.proofs import proof_of
from explorer.optimizations.references import is_reference
from explorer.results.checks import Checks, Ran
from explorer.results.parity import Parity
from explorer.results.proof import Profile


def unchecked(config: RunConfig) -> Checks:
    """What is known of ``config`` before it was checked."""
    return Checks(is_reference=is_reference(config))


def wanted(
    known: Mapping[RunConfig, Checks], *, run_id: int, parity: bool, proof: bool, download: bool
) -> Verify | None:
    """The command for what is not yet ``known``; None where nothing is left to check."""
    no_parity = tuple(c for c, checks in known.items() if parity and not checks.parity_done)
    no_proof = tuple(c for c, checks in known.items() if proof and not checks.proof_done)
    if not (no_parity or no_proof):
        return None
    return Verify(run_id=run_id, parity=no_parity, proof=no_proof, download=download)


def check(
    command: Verify,
    known: Mapping[RunConfig, Checks],
    *,
    asked_to_stop: AskedToStop,
    on_found: Callable[[RunConfig, Checks], None],
) -> Steps[Mapping[RunConfig, Checks]]:
    """Have ``command``, made by ``wanted`` from ``known``, done and return ``known`` with what it found.

    ``on_found`` hears each configuration's checks so far whenever one more is there. What a stop or the worker's end
    left undone stays so. Where the worker does not hear a stop in time it may still be at it on return.
    """
    found = dict(known)
    orders: Sequence[Order] = (command,)
    asked_at_s: float | None = None
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case ParityChecked() | Profiled():
                    found[event.config] = _with(found[event.config], event)
                    on_found(event.config, found[event.config])
                case RunEnded() if event.run_id == command.run_id:
                    return _failed(found, command, event.problem)
                case WorkerLost():
                    why = event.last_words or f"status {event.exit_code}"
                    return _failed(found, command, Problem(what="The worker died", why=why))
                case _:
                    pass
        if asked_at_s is None and asked_to_stop():
            asked_at_s = time.monotonic()
            orders = (Stop(run_id=command.run_id),)
        elif asked_at_s is not None and time.monotonic() > asked_at_s + STOP_WITHIN_S:
            return found


def _with(checks: Checks, event: ParityChecked | Profiled) -> Checks:
    match event.found:
        case Parity() as parity:
            return dataclasses.replace(checks, parity=parity)
        case Profile() as profile:
            busy = None if math.isnan(profile.busy_share) else profile.busy_share
            ran = Ran(proofs=proof_of(event.config, profile), launches=profile.launches, busy_share=busy)
            return dataclasses.replace(checks, ran=ran)
        case Problem() as problem if isinstance(event, ParityChecked):
            return dataclasses.replace(checks, parity_problem=str(problem))
        case Problem() as problem:
            return dataclasses.replace(checks, ran_problem=str(problem))


def _failed(found: Mapping[RunConfig, Checks], command: Verify, problem: Problem | None) -> Mapping[RunConfig, Checks]:
    """``found``, with ``problem`` for what is left of ``command``; None: it was stopped, or nothing is left."""
    after = dict(found)
    if problem is not None:
        for config in command.parity:
            checks = after[config]
            after[config] = checks if checks.parity_done else dataclasses.replace(checks, parity_problem=str(problem))
        for config in command.proof:
            checks = after[config]
            after[config] = checks if checks.proof_done else dataclasses.replace(checks, ran_problem=str(problem))
    return after
