"""Work in processes of their own that get ready side by side, compiling above all, and is then timed by turns."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from explorer.engine.isolation import die_with_parent

Result = TypeVar("Result")
Turn = Callable[[], AbstractContextManager[None]]
"""Makes the context that is entered once ready: while in it, no other work runs."""
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """In the place of a result."""

    why: str


def at_once(jobs: Sequence[Callable[[Turn], Result]]) -> Iterator[Result | Failed]:
    """What each of ``jobs``, which must be picklable, returns, in their order; the next one's turn comes with the next.

    No turn begins before all are ready or have failed. A process ends with its turn, and gives its memory back.
    """
    context = multiprocessing.get_context("spawn")
    running = []
    with _shared_cores(len(jobs)):
        for job in jobs:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, job), daemon=True)
            process.start()
            theirs.close()
            running.append((ours, process))
    try:
        first = [_heard(pipe) for pipe, _ in running]
        for (pipe, process), answer in zip(running, first, strict=True):
            if not isinstance(answer, Failed):
                pipe.send(None)
                answer = _heard(pipe)
            process.join()
            yield answer
    finally:
        for pipe, process in running:
            process.kill()
            process.join()
            pipe.close()


def _work(pipe: Connection, job: Callable[[Turn], Result]) -> None:
    die_with_parent()
    try:
        pipe.send(job(partial(_turn, pipe)))
    except Exception as error:
        traceback.print_exc()
        pipe.send(Failed(why=str(getattr(error, "why", f"{type(error).__name__}: {error}")).splitlines()[0]))


@contextmanager
def _turn(pipe: Connection) -> Iterator[None]:
    pipe.send(None)
    pipe.recv()
    yield


def _heard(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return Failed(why="its process ended without a word")


@contextmanager
def _shared_cores(jobs: int) -> Iterator[None]:
    """Inductor takes all cores for its own processes unless told otherwise."""
    if THREADS in os.environ or not jobs:
        yield
        return
    os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        del os.environ[THREADS]
