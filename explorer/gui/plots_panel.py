"""The live curves: throughput, memory, loss and step time of the run that is going."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from explorer.config import RunConfig
from explorer.results.environment import DeviceInfo
from explorer.results.sample import Sample, Segment

if TYPE_CHECKING:
    from explorer.results.log import RunLog


class PlotsPanel(QWidget):
    def __init__(self, log: RunLog, parent: QWidget | None = None) -> None:
        super().__init__(parent)

    def begin_run(self, run_id: int, config: RunConfig) -> None: ...

    def add_segment(self, run_id: int, config: RunConfig, segment: Segment) -> None: ...

    def add_samples(self, run_id: int, samples: Sequence[Sample]) -> None: ...

    def show_progress(self, text: str | None) -> None: ...

    def end_run(self, run_id: int) -> None: ...

    def set_frozen(self, frozen: bool) -> None: ...

    def set_redraw(self, on: bool) -> None: ...

    def set_device(self, device: DeviceInfo | None) -> None: ...

    def apply_theme(self, dark: bool) -> None: ...
