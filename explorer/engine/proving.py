"""Prove a configuration in a process of its own, which ends with it: see ``proof.py`` for why."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection

from explorer.config import RunConfig
from explorer.engine.errors import Cancelled
from explorer.engine.isolation import LAST_WORDS_BYTES, die_with_parent, settings_for_the_child
from explorer.messages import Problem
from explorer.results.proof import Profile

Report = Callable[[str], None]
"""Called with what is being done."""
POLL_S = 0.1
"""How soon a cancelled profile ends."""


def profile_of(
    config: RunConfig,
    *,
    download: bool = False,
    report: Report = lambda activity: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Profile | Problem:
    """The profile of ``config``, taken in a spawned process that is gone when this returns; or why there is none.

    Takes seconds: the process imports torch, loads the model and runs some steps. ``download``: fetching weights or
    text from the network is allowed. On Linux the process is bound to the life of the thread that starts it.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="gpt2-explorer-", suffix=".log") as errors:
        process = context.Process(
            target=_serve, args=(config, download, sending, errors.name), name="gpt2-explorer-proof", daemon=True
        )
        with settings_for_the_child():
            process.start()
        sending.close()  # only the child holds it now, so that its death closes it
        try:
            while True:
                while not receiving.poll(POLL_S):
                    if cancelled():
                        raise Cancelled
                message: str | Profile | Problem = receiving.recv()
                if not isinstance(message, str):
                    return message
                report(message)
        except EOFError:
            process.join()
            last_words = errors.read()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
            why = (last_words.splitlines() or [f"exit status {process.exitcode}"])[-1]
            return Problem(what="The process that took the profile died", why=why, detail=last_words)
        finally:
            process.kill()
            process.join()
            receiving.close()


def _serve(config: RunConfig, download: bool, sending: Connection, errors: str) -> None:
    """The child, on its main thread."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process; the parent decides
    log = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    faulthandler.enable(file=2)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: nobody wants what this computes
        sending.send(_answer(config, download, sending.send))


def _answer(config: RunConfig, download: bool, report: Report) -> Profile | Problem:
    from explorer.engine.device import environment
    from explorer.engine.errors import BadRequest
    from explorer.engine.problems import describe
    from explorer.engine.proof import fitted, take_profile
    from explorer.engine.session import Session

    def progress(activity: str, done: float | None, total: float | None, unit: str) -> None:
        report(activity)

    try:
        report("importing torch")
        try:
            device = environment().device(config.device)
        except ValueError as error:
            raise BadRequest(what="No such device", why=str(error)) from error
        with Session(fitted(config), device, download=download, report=progress, cancelled=lambda: False) as session:
            session.begin_segment(0)
            report("profiling")
            return take_profile(session)
    except Exception as error:  # this process's border: whatever happened becomes words
        return describe(error, config)
