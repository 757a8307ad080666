"""Presets in the window: set as one step to undo, saved, deleted, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, Signal

from explorer.config import RunConfig
from explorer.gui.intent import Intent
from explorer.gui.language import from_below, tr
from explorer.gui.message_bar import MessageBar
from explorer.gui.preset_bar import PresetBar, preset_words
from explorer.optimizations.presets import PRESETS, Fitted, LeftOut, with_levels, with_preset
from explorer.optimizations.registry import by_name
from explorer.results.environment import DeviceInfo

Own = Mapping[str, tuple[tuple[str, str], ...]]
"""The person's own presets: by name, the toggles that are set."""


class PresetControl(QObject):
    """Connects the bar of presets with intent, settings and messages."""

    names_changed = Signal()
    current_changed = Signal(bool)
    """Whether the preset that is set now is one of the person's own"""

    def __init__(
        self,
        bar: PresetBar,
        intent: Intent,
        messages: MessageBar,
        *,
        own: Own,
        remember: Callable[[Own], None],
        device: Callable[[], DeviceInfo | None],
    ) -> None:
        """``device``: what the settings of the moment would run on; None until the worker has said it."""
        super().__init__(bar)
        self._bar = bar
        self._intent = intent
        self._messages = messages
        self._own = dict(own)
        self._remember = remember
        self._device = device
        bar.chosen.connect(lambda name, own: self.take((name, own)))
        bar.save_wanted.connect(self._save)
        bar.delete_wanted.connect(self._delete)
        intent.changed.connect(self.show_current)
        self._show()

    @property
    def names(self) -> tuple[str, ...]:
        """The person's own presets."""
        return tuple(self._own)

    def take(self, preset: tuple[str, bool]) -> None:
        """Set the toggles of ``preset`` (its name, and whether it is one's own), and say which of them cannot run."""
        device = self._device()
        if device is None:
            self._messages.show_message(tr("The worker has not yet said what can run here."), severity="warning")
            self.show_current()
            return
        fitted = self._fitted(preset, self._intent.config, device)
        self._intent.replace(fitted.config)
        self.show_current()
        if fitted.left_out:
            words = " ".join(map(_words, fitted.left_out))
            self._messages.show_message(
                tr("{preset}, as far as it can run here. {what}", preset=preset_words(preset), what=words),
                severity="warning",
            )

    def show_current(self, *_: object) -> None:
        """Show which preset the settings of the moment are."""
        device, config = self._device(), self._intent.config
        known = [*((name, False) for name in PRESETS), *((name, True) for name in self._own)]
        # One's own name says more than the preset that it may equal, and a tier less of which nothing can run here.
        alike = [p for p in known if device is not None and self._fitted(p, config, device).config == config]
        last = alike[-1] if alike else None
        current = last if last is None or last[1] or config.levels else alike[0]
        self._bar.show_current(current)
        self.current_changed.emit(current is not None and current[1])

    def reword(self) -> None:
        """Show the bar in the language of the moment."""
        self._bar.reword()

    def _fitted(self, preset: tuple[str, bool], config: RunConfig, device: DeviceInfo) -> Fitted:
        name, own = preset
        return with_levels(config, self._own[name], device) if own else with_preset(config, name, device)

    def _save(self, name: str) -> None:
        self._put({**self._own, name: self._intent.config.levels})
        self._messages.show_message(tr("The toggles of the moment are kept as the preset {name}.", name=name))

    def _delete(self, name: str) -> None:
        before = dict(self._own)
        self._put({other: levels for other, levels in self._own.items() if other != name})
        self._messages.show_message(
            tr("The preset {name} is deleted.", name=name),
            action=tr("Bring it back"),
            on_action=lambda: self._put(before),
        )

    def _put(self, own: Own) -> None:
        self._own = dict(own)
        self._remember(self._own)
        self._show()
        self.names_changed.emit()

    def _show(self) -> None:
        self._bar.show_own(self.names)
        self.show_current()


def _words(left: LeftOut) -> str:
    toggle = by_name(left.toggle)
    return tr(
        "{toggle}: {instead} instead of {level}, since {why}.",
        toggle=tr(toggle.label),
        instead=tr(toggle.level(left.instead).label),
        level=tr(toggle.level(left.level).label),
        why=from_below(left.why),
    )
