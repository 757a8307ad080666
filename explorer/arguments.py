"""Checks of what an option was given that several commands share. Imports nothing of ours."""

from __future__ import annotations

import math
from pathlib import Path


def above_zero(option: str, value: float) -> float:
    """``value``, if it is a finite number above 0: less leaves nothing to do, and with infinity or NaN none would end.

    Raises:
        ValueError: it is not; the message names ``option``.
    """
    if not 0 < value < math.inf:
        raise ValueError(f"{option} is {value}; it must be above 0 and finite")
    return value


def at_least(option: str, value: int, least: int) -> int:
    """``value``, if it is no less than ``least``.

    Raises:
        ValueError: it is; the message names ``option``.
    """
    if value < least:
        raise ValueError(f"{option} is {value}; it must be at least {least}")
    return value


def folder(option: str, path: Path) -> Path:
    """``path`` as a folder that is there, made where it was not.

    Raises:
        ValueError: it is a file, or cannot be made; the message names ``option``.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null character
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{option} is {str(path)!r}; it must be a folder, or a name for one: {why}") from error
    return path
