"""What the person wants: the current RunConfig, and the ones before it to go back to."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from PySide6.QtCore import QObject, Signal

from explorer.config import RunConfig

MAX_UNDO_STEPS = 200
# Clicks on one control that follow each other this fast are one change: a held arrow key is one step to undo.
MERGE_WINDOW_S = 0.6


def changed_fields(old: RunConfig, new: RunConfig) -> frozenset[str]:
    """Names of the fields, and of the toggles as ``levels.<name>``, in which the two differ."""
    fields = {
        field.name
        for field in dataclasses.fields(RunConfig)
        if field.name != "levels" and getattr(old, field.name) != getattr(new, field.name)
    }
    names = {name for name, _ in old.levels} | {name for name, _ in new.levels}
    return frozenset(fields | {f"levels.{name}" for name in names if old.level(name) != new.level(name)})


class Intent(QObject):
    """The only statement of what is wanted. Controls replace it and are redrawn from it.

    ``changed`` carries (new, old) and is emitted only when they differ.
    """

    changed = Signal(object, object)

    def __init__(self, config: RunConfig, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._config = config
        self._past: list[RunConfig] = []
        self._future: list[RunConfig] = []
        self._last_fields: frozenset[str] = frozenset()
        self._last_time_s = 0.0

    @property
    def config(self) -> RunConfig:
        return self._config

    @property
    def undo_target(self) -> RunConfig | None:
        """What undo would go back to."""
        return self._past[-1] if self._past else None

    @property
    def redo_target(self) -> RunConfig | None:
        return self._future[-1] if self._future else None

    def change(self, **fields: Any) -> None:
        """Replace some fields; the step can be undone.

        Raises:
            ValueError: a value that RunConfig does not allow; nothing is changed.
        """
        self.replace(dataclasses.replace(self._config, **fields))

    def replace(self, config: RunConfig) -> None:
        """Want ``config`` instead; the step can be undone."""
        if config == self._config:
            return
        fields = changed_fields(self._config, config)
        now_s = time.monotonic()
        merged = bool(self._past) and fields == self._last_fields and now_s - self._last_time_s < MERGE_WINDOW_S
        if not merged:
            self._past.append(self._config)
            del self._past[:-MAX_UNDO_STEPS]
        self._future.clear()
        self._last_fields, self._last_time_s = fields, now_s
        self._show(config)

    def correct(self, config: RunConfig) -> None:
        """Want ``config`` because the machine leaves no choice; not a step of the person's to undo."""
        self._last_fields = frozenset()
        self._show(config)

    def undo(self) -> None:
        if self._past:
            self._future.append(self._config)
            self._last_fields = frozenset()
            self._show(self._past.pop())

    def redo(self) -> None:
        if self._future:
            self._past.append(self._config)
            self._last_fields = frozenset()
            self._show(self._future.pop())

    def _show(self, config: RunConfig) -> None:
        old, self._config = self._config, config
        if config != old:
            self.changed.emit(config, old)
