"""Processes of other programs, as the system sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def running(pid: int) -> bool:
    """Whether that process is there and has not ended. Source: proc(5), stat, third field."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until(fact: Callable[[], bool], within_s: float) -> float:
    """How long it took until ``fact`` held, in seconds."""
    began_s = time.monotonic()
    while not fact():
        assert time.monotonic() - began_s < within_s, f"not within {within_s} s"
        time.sleep(0.01)
    return time.monotonic() - began_s
