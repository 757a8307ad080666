"""Whether the system is ending processes because its memory is used up."""

from __future__ import annotations

import time
from pathlib import Path

COUNTS = Path("/proc/vmstat")
LOOK_EVERY_S = 1.0


class KillCount:
    """How often the system has ended a process for want of memory, against the last look."""

    def __init__(self) -> None:
        self._count = _killed()
        self._looked_at_s = time.monotonic()

    def look(self) -> None:
        """Take the count of now for the one to compare with, at most once in ``LOOK_EVERY_S``."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._count, self._looked_at_s = _killed(), now_s

    def grew(self) -> bool | None:
        """Whether it has grown since; None where the system does not tell."""
        count = _killed()
        return None if count is None or self._count is None else count > self._count


def _killed() -> int | None:
    """Source: Linux, mm/vmstat.c, oom_kill: of the machine and of every control group."""
    try:
        lines = COUNTS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
