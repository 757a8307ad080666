"""A profile in a process of its own, which ends with it: a profiler slows the process that it was in from then on."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from explorer.config import RunConfig
from explorer.engine.errors import Cancelled
from explorer.engine.isolation import LAST_WORDS_BYTES, die_with_parent, settings_for_the_child
from explorer.messages import Problem
from explorer.results.scratch import Scratch

if TYPE_CHECKING:
    from explorer.engine.session import Session

Found = TypeVar("Found")
Report = Callable[[str], None]
"""Called with what is being done."""
POLL_S = 0.1
"""How soon cancelled work ends."""


def silent(activity: str) -> None:
    """A Report that tells nobody."""


def never() -> bool:
    """What is not to be cancelled."""
    return False


def apart(
    work: Callable[[Report], Found | Problem],
    *,
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> Found | Problem:
    """What ``work``, which must be picklable, returns from a spawned process that is gone when this returns.

    A Problem where the process died. On Linux it is bound to the life of the thread that starts it.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    with Scratch() as folder:
        errors = folder / "errors.log"
        errors.touch()
        process = context.Process(
            target=_serve, args=(work, sending, str(errors)), name="gpt2-explorer-apart", daemon=True
        )
        with settings_for_the_child():
            process.start()
        sending.close()  # only the child holds it now, so that its death closes it
        try:
            while True:
                while not receiving.poll(POLL_S):
                    if cancelled():
                        raise Cancelled
                message: str | Found | Problem = receiving.recv()
                if not isinstance(message, str):
                    return message
                report(message)
        except EOFError:
            process.join()
            last_words = errors.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
            why = (last_words.splitlines() or [f"exit status {process.exitcode}"])[-1]
            return Problem(what="The process that took the profile died", why=why, detail=last_words)
        finally:
            process.kill()
            process.join()
            receiving.close()


def _serve(work: Callable[[Report], Any], sending: Connection, errors: str) -> None:
    """The child, on its main thread."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process; the parent decides
    log = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    faulthandler.enable(file=2)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: nobody wants what this computes
        sending.send(work(sending.send))


def in_session(
    config: RunConfig, use: Callable[[Session], Found], *, download: bool, report: Report
) -> Found | Problem:
    """What ``use`` makes of a session of ``config`` whose first segment has begun; whatever fails becomes words.

    ``download``: fetching weights or text from the network is allowed.
    """
    from explorer.engine.device import environment
    from explorer.engine.errors import BadRequest
    from explorer.engine.problems import describe
    from explorer.engine.session import Session

    def progress(activity: str, done: float | None, total: float | None, unit: str) -> None:
        report(activity)

    try:
        try:
            device = environment().device(config.device)
        except ValueError as error:
            raise BadRequest(what="No such device", why=str(error)) from error
        with Session(config, device, download=download, report=progress, cancelled=never) as session:
            session.begin_segment(0)
            return use(session)
    except Exception as error:  # this process's border: whatever happened becomes words
        return describe(error, config)
