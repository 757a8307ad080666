"""Experiments as plain generators, so that the command line and the window can drive the same ones.

A generator yields what is to be sent to the worker, mostly nothing, and is given the events that came since. Whoever
drives it looks after the worker and after the pauses between: ``drive`` with a sleep, a window with a timer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from explorer.experiments import single
from explorer.experiments.single import POLL_S, WorkerGone
from explorer.experiments.stall import StallWatch
from explorer.messages import Command, Event, WorkerLost, WorkerReady
from explorer.results.environment import Environment

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FreshWorker:
    """Close the worker, if it still lives, and open another: its memory or its CUDA context may be spoilt."""


Order = Command | FreshWorker
Steps = Generator[Sequence[Order], Sequence[Event], Result]

AskedToStop = Callable[[], bool]
"""Whether the person wants an end; what was measured until then is kept."""


class Worker(single.Worker, Protocol):
    """The part of a worker that ``drive`` uses."""

    def close(self) -> None: ...


class StoppedBefore(KeyboardInterrupt):
    """An end was asked for while the worker was starting, before there was anything to keep."""


def drive(open_worker: Callable[[], Worker], steps: Steps[Result], on_event: Callable[[Event], None]) -> Result:
    """Run ``steps`` to its end with a worker of its own, and return its result. ``on_event`` hears every event."""
    worker = open_worker()
    stall = StallWatch()
    try:
        orders = next(steps)
        while True:
            for order in orders:
                if isinstance(order, FreshWorker):
                    worker.close()
                    worker = open_worker()
                else:
                    worker.send(order)
            events = worker.drain()
            if not events:
                time.sleep(POLL_S)
            stall.take(events)
            note = stall.look()
            for event in (*events, note) if note is not None else events:
                on_event(event)
            try:
                orders = steps.send(events)
            except StopIteration as end:
                result: Result = end.value
                return result
    finally:
        steps.close()
        worker.close()


def ready(orders: Sequence[Order] = (), *, asked_to_stop: AskedToStop = lambda: False) -> Steps[Environment]:
    """Give ``orders``, which may ask for a fresh worker, and wait for the new worker's first event.

    Raises:
        WorkerGone: it died while starting.
        StoppedBefore: an end was asked for first.
    """
    while True:
        events = yield orders
        orders = ()
        if asked_to_stop():
            raise StoppedBefore
        for event in events:
            match event:
                case WorkerReady():
                    return event.environment
                case WorkerLost():
                    words = event.last_words or f"exit status {event.exit_code}"
                    raise WorkerGone(f"the worker could not start: {words}")
                case _:
                    pass
