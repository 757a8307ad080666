"""The experiments of many measurements, a page each: ladder, sweep, attribution, A/A floor."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QTabWidget, QVBoxLayout, QWidget

from explorer.gui.attribution_page import AttributionPage
from explorer.gui.floor_page import FloorPage
from explorer.gui.ladder_page import LadderPage
from explorer.gui.language import tr
from explorer.gui.series_page import Kind, SeriesPage
from explorer.gui.sweep_page import SweepPage


class SeriesPanel(QWidget):
    start_wanted = Signal(str)
    """The page's kind."""
    stop_wanted = Signal()
    export_wanted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("series_panel")
        self.ladder, self.sweep, self.attribution, self.floor = (
            LadderPage(),
            SweepPage(),
            AttributionPage(),
            FloorPage(),
        )
        self.pages: dict[Kind, SeriesPage] = {
            page.kind: page for page in (self.ladder, self.sweep, self.attribution, self.floor)
        }
        self._tabs = QTabWidget()
        self._tabs.setObjectName("series_pages")
        self._tabs.setDocumentMode(True)
        for kind, page in self.pages.items():
            self._tabs.addTab(page, tr(page.title))
            page.start_wanted.connect(lambda kind=kind: self.start_wanted.emit(kind))
            page.stop_wanted.connect(self.stop_wanted)
            page.export_wanted.connect(lambda kind=kind: self.export_wanted.emit(kind))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.addWidget(self._tabs)
        self.show_state(going=False, measuring=None)

    def show_page(self, kind: Kind) -> None:
        """Bring the page of ``kind`` to the front, ready to be started by the keyboard."""
        self._tabs.setCurrentWidget(self.pages[kind])
        self.pages[kind].start.setFocus()

    def show_state(self, *, going: bool, measuring: Kind | None) -> None:
        """``going``: something has the worker; ``measuring``: the page whose experiment that is."""
        for kind, page in self.pages.items():
            page.show_state(going=going, measuring=kind == measuring)

    def values(self) -> dict[str, Any]:
        """What the person has set, by page."""
        return {kind: page.values() for kind, page in self.pages.items()}

    def take(self, values: dict[str, Any]) -> None:
        """Set what was remembered."""
        for kind, page in self.pages.items():
            if isinstance(values.get(kind), dict):
                page.take(values[kind])

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        for page in self.pages.values():
            page.apply_theme(dark)

    def reword(self) -> None:
        """Show everything in the language of the moment."""
        for index, page in enumerate(self.pages.values()):
            self._tabs.setTabText(index, tr(page.title))
            page.reword()
