"""Exceptions turned into words: what happened, why, and what to do about it."""

from __future__ import annotations

import errno
import traceback

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest, Diverged
from explorer.engine.known_errors import describe_known
from explorer.engine.out_of_memory import describe_out_of_memory, is_out_of_memory
from explorer.messages import Problem
from explorer.results.environment import DeviceInfo

_LACKING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
"""A disk that is full, at its quota, broken or closed, and too many open files: of no setting of a run."""


def describe(
    error: BaseException, config: RunConfig, device: DeviceInfo | None = None, before: RunConfig | None = None
) -> Problem:
    """What to show for ``error`` in a run of ``config``. Keeps no reference to the error or its frames.

    Args:
        error: what ended it.
        config: what it was doing.
        device: where; None where that is not known.
        before: what it had been doing until a setting changed.
    """
    detail = "".join(traceback.format_exception(error))
    match error:
        case BadRequest():
            return Problem(what=error.what, why=error.why, remedy=error.remedy, detail=detail, bad_request=True)
        case Diverged():
            return Problem(
                what=f"The comparison was stopped, since arm {error.arm} computes no numbers any more",
                why=error.why,
                remedy="Lower the learning rate of both arms, or take another level for this one.",
                detail=detail,
            )
        case _ if is_out_of_memory(error):
            return describe_out_of_memory(error, config, device, before)
        case _ if (why := _of_the_system(error)) is not None:
            remedy = "Make room, or end what uses it up, and start again."
            return Problem(
                what="The run failed, and not of itself", why=why, remedy=remedy, detail=detail, outside=True
            )
        case _ if (known := describe_known(error, config)) is not None:
            return known
        case ValueError():
            return Problem(what="This cannot run", why=str(error), detail=detail, bad_request=True)
        case _:
            return Problem(
                what="The run failed",
                why=f"{type(error).__name__}: {_first_words(str(error))}",
                remedy="The details name the place; end the worker if the next run fails too.",
                detail=detail,
            )


def _of_the_system(error: BaseException) -> str | None:
    """What the system lacks, where ``error`` or what it came of says so; None of any other."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _LACKING:
            return f"{seen.strerror}: {seen.filename}" if seen.filename else seen.strerror
        seen = seen.__cause__ or seen.__context__
    return None


def _first_words(text: str) -> str:
    """The first line; with the next where it only announces it, as torch.compile does: "backend='inductor' raised:"."""
    first, *rest = text.strip().splitlines() or ["no message"]
    return f"{first} {rest[0].strip()}" if first.endswith(":") and rest else first
