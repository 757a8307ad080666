"""Prove a configuration in a process of its own: see ``proof.py`` for why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from explorer.config import RunConfig
from explorer.engine.apart import Report, apart, in_session, never, silent
from explorer.messages import Problem
from explorer.results.proof import Profile

if TYPE_CHECKING:
    from explorer.engine.session import Session


def profile_of(
    config: RunConfig,
    *,
    download: bool = False,
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> Profile | Problem:
    """The profile of ``config``, taken in a spawned process that is gone when this returns; or why there is none.

    Takes seconds: the process imports torch, loads the model and runs some steps. ``download``: fetching weights or
    text from the network is allowed.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    return apart(partial(_profile, config, download), report=report, cancelled=cancelled)


def _profile(config: RunConfig, download: bool, report: Report) -> Profile | Problem:
    report("importing torch")
    from explorer.engine.proof import fitted, take_profile

    def use(session: Session) -> Profile:
        report("profiling")
        return take_profile(session)

    return in_session(fitted(config), use, download=download, report=report)
