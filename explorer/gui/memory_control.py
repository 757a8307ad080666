"""The worker's memory at hand: a summary of it, and its cache given back."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from explorer.gui.bridge import Bridge
from explorer.gui.language import tr
from explorer.gui.memory_window import MemoryWindow
from explorer.gui.message_bar import MessageBar
from explorer.messages import CacheEmptied, EmptyCache, MemorySummary, SummarizeMemory
from explorer.results.environment import DeviceInfo


class MemoryControl(QObject):
    """Asks, and shows what is answered."""

    def __init__(
        self,
        bridge: Bridge,
        messages: MessageBar,
        parent: QWidget,
        *,
        device: Callable[[], DeviceInfo | None],
        save: Callable[[str], None],
    ) -> None:
        """``device``: what the settings of the moment would run on. ``save``: asks where to, and writes a text."""
        super().__init__(parent)
        self._bridge = bridge
        self._messages = messages
        self._parent = parent
        self._device = device
        self._save = save
        self._window: MemoryWindow | None = None
        bridge.answered.connect(self._answered)

    def summarize(self) -> None:
        """Have the worker say what it holds, at the next step boundary."""
        self._ask(self.obstacle(), SummarizeMemory())

    def empty_cache(self) -> None:
        """Have the worker give back what its allocator keeps for later."""
        self._ask(self.obstacle_to_emptying(), EmptyCache())

    def reword(self) -> None:
        """Show what stands in the window in the language of the moment."""
        if self._window is not None:
            self._window.reword()

    def obstacle(self) -> str:
        """Why the worker cannot be asked now; empty where it can."""
        if self._bridge.state in ("absent", "starting"):
            return tr("The worker has not started yet.")
        if self._bridge.experimenting:
            return tr("A measurement is going that must not be disturbed: wait for its end, or stop it (Shift+F5).")
        return ""

    def obstacle_to_emptying(self) -> str:
        """Why there is no cache to empty now; empty where there may be one."""
        device = self._device()
        if device is not None and device.kind == "cpu":
            return tr("On the CPU torch keeps no cache: memory goes back when a tensor dies.")
        return self.obstacle()

    def _ask(self, obstacle: str, command: SummarizeMemory | EmptyCache) -> None:
        if obstacle:
            self._messages.show_message(obstacle, severity="warning")
        else:
            self._bridge.ask(command)

    def _answered(self, event: MemorySummary | CacheEmptied) -> None:
        match event:
            case MemorySummary():
                self._show(event)
            case CacheEmptied():
                words = (
                    tr(
                        "{freed:.2f} GiB came free; the allocator still holds {held:.2f} GiB. The next steps ask the "
                        "device anew.",
                        freed=event.freed_bytes / 2**30,
                        held=event.held_bytes / 2**30,
                    )
                    if event.freed_bytes
                    else tr(
                        "Nothing came free: the allocator keeps {held:.2f} GiB, all of it in use.",
                        held=event.held_bytes / 2**30,
                    )
                )
                self._messages.show_message(words)

    def _show(self, summary: MemorySummary) -> None:
        if self._window is None:
            self._window = MemoryWindow(self._parent)
            self._window.again_wanted.connect(self.summarize)
            self._window.save_wanted.connect(self._save)
            self._window.destroyed.connect(self._forget)
        self._window.show_summary(summary)
        self._window.show()
        self._window.raise_()

    def _forget(self) -> None:
        self._window = None
