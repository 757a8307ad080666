"""What long work in parts shares: the time that is left, and results that are kept for the next time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explorer.experiments.kept import Kept
from explorer.gui.language import tr

LEAST_PARTS = 3
"""After fewer nothing can be said of the time that is left."""


class Parts:
    """The parts of long work as they begin."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._begun = 0
        self.name = ""
        """Of the part that is going."""
        self.left = 0
        """Parts to do, with this one."""

    def begin(self, name: str, left: int) -> None:
        """The part ``name`` begins, or goes on."""
        if name != self.name:
            self._begun += 1
        self.name, self.left = name, left

    def time_left(self) -> str:
        """How long it may take still, in words; empty before that can be told."""
        done = self._begun - 1
        if done < LEAST_PARTS:
            return ""
        left_s = (time.monotonic() - self._began_s) / done * self.left
        return tr("about {time} left", time=_duration(left_s))


class KeptFiles:
    """Files of results in ``folder``, one for each set of conditions; without a folder they last as long as this.

    ``report`` hears why a file could not be written, once for each time; results are kept here all the same.
    """

    def __init__(self, folder: Path | None, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._kept: dict[str, Kept] = {}

    def of(self, kind: str, conditions: Mapping[str, Any], *, about: Any = None, go_on: bool) -> Kept:
        """What was measured of ``about`` under ``conditions`` before; none of it where all is to be measured anew.

        Raises:
            ValueError, OSError: the file cannot be read, or not be made.
        """
        text = json.dumps(conditions if about is None else [conditions, about], sort_keys=True)
        name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        path = None if self._folder is None else self._folder / f"{name}.json"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not go_on:
            self._kept.pop(name, None)
            if path is not None:
                path.unlink(missing_ok=True)
        if name not in self._kept:
            self._kept[name] = _Kept(path, conditions, self._report)
        return self._kept[name]


class _Kept(Kept):
    """Goes on without the file where that cannot be written, and says so."""

    def __init__(self, path: Path | None, conditions: Mapping[str, Any], report: Callable[[str], None]) -> None:
        super().__init__(path, conditions)
        self._report = report

    def put(self, kind: str, key: str, value: Any) -> None:
        try:
            super().put(kind, key, value)
        except (ValueError, RuntimeError) as error:
            self._report(str(error))


def _duration(seconds: float) -> str:
    return tr("{count:.0f} s", count=seconds) if seconds < 90 else tr("{count:.0f} min", count=seconds / 60)
