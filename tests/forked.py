"""Processes forked from one that has torch already: each that imports it anew takes five seconds of a core."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any


class Forked(ForkServerContext):
    """Starts processes as ``spawn`` does: from a pickle, with the environment and the outputs of this moment."""

    def Process(self, *, target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> ForkServerProcess:
        return super().Process(target=_with, args=(dict(os.environ), _Outputs(), target, args), **options)


class _Outputs:
    """Standard output and error, which the process has from where it is forked; unpickled there they are this one's."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return _take, (reduction.DupFd(1), reduction.DupFd(2))


def _take(*outputs: Any) -> None:
    for number, output in enumerate(outputs, start=1):
        os.dup2(output.detach(), number)


def _with(environment: dict[str, str], outputs: None, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*args)


def forks_for_spawns() -> Callable[[str | None], Any]:
    """What stands in for ``multiprocessing.get_context``."""
    genuine, forked = multiprocessing.get_context, Forked()
    forked.set_forkserver_preload(["explorer.engine.runner", "explorer.engine.live_run", "explorer.engine.lab"])
    return lambda method=None: forked if method == "spawn" else genuine(method)
