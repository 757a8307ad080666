"""Exceptions turned into words: what happened, why, and what to do about it."""

from __future__ import annotations

import traceback

import torch

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest
from explorer.messages import Problem

GIB = 2**30


def describe(error: BaseException, config: RunConfig) -> Problem:
    """What to show for ``error`` in a run of ``config``. Keeps no reference to the error or its frames."""
    detail = "".join(traceback.format_exception(error))
    match error:
        case BadRequest():
            return Problem(what=error.what, why=error.why, remedy=error.remedy, detail=detail, bad_request=True)
        case torch.OutOfMemoryError():
            free = ""
            if torch.cuda.is_available() and config.device.startswith("cuda"):
                free_bytes, total_bytes = torch.cuda.mem_get_info(torch.device(config.device))
                free = f" {free_bytes / GIB:.2f} of {total_bytes / GIB:.1f} GiB are free now."
            return Problem(
                what="Out of memory",
                why=f"batch {config.batch} x {config.seq} tokens does not fit. {str(error).splitlines()[0]}{free}",
                remedy=f"Try batch {max(1, config.batch // 2)}, or turn on checkpointing, sdpa or bf16.",
                detail=detail,
                out_of_memory=True,
            )
        case MemoryError():
            return Problem(
                what="Out of memory",
                why="this machine's main memory is used up",
                remedy=f"Try batch {max(1, config.batch // 2)} or a smaller model.",
                detail=detail,
                out_of_memory=True,
            )
        case ValueError():
            return Problem(what="This cannot run", why=str(error), detail=detail, bad_request=True)
        case _:
            text = str(error).strip()
            return Problem(
                what="The run failed",
                why=f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}",
                remedy="The details name the place; end the worker if the next run fails too.",
                detail=detail,
            )
