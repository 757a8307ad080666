"""What the panes of the plots panel share: a plot under a header that says its figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
from PySide6.QtWidgets import QVBoxLayout, QWidget

from explorer.config import Workload
from explorer.gui.curve import Curve
from explorer.gui.envelope import Floats
from explorer.gui.language import later
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import theme
from explorer.gui.readout import Caption, Readout, Readouts
from explorer.gui.run_curves import Figures, RunCurves

WAITING_WORDS = later("Waiting for the first step.")
PER_UNIT: Mapping[Literal["step", "token"], str] = MappingProxyType(
    {"step": later("ms/step"), "token": later("ms/token")}
)


class Pane(QWidget):
    """A plot and its header: caption, readouts and, where given, a widget that takes the rest of the row."""

    idle_words: str
    """What the empty plot teaches before the first run."""

    def __init__(self, caption: str, plot: LivePlot, readouts: tuple[Readout, ...], *side: QWidget) -> None:
        super().__init__()
        self.plot = plot
        self._readouts = readouts
        self._caption = Caption(caption)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(Readouts(readouts, caption=self._caption, side=side))
        column.addWidget(plot, 1)
        self.teach()

    def teach(self) -> None:
        """Say what the empty plot will show."""
        self.plot.show_words(self.idle_words)

    def begin(self, run_id: int, workload: Workload) -> None:
        """Clear the pane for a run."""
        self.plot.clear_curves()
        self.plot.show_words(WAITING_WORDS)

    @abstractmethod
    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        """Draw the run from ``low_s`` to ``high_s``; it has at least one sample."""

    @abstractmethod
    def told(self, curves: RunCurves, row: int) -> str:
        """What is shown of the step in ``row``, with its unit."""

    @abstractmethod
    def show_figures(self, figures: Figures) -> None: ...

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        """Put on the colours of a look, and those of the run where there is one."""
        look = theme(dark)
        self.plot.apply_theme(look)
        self._caption.apply_theme(look)
        for readout in self._readouts:
            readout.apply_theme(look)


def highest(values: Floats) -> float:
    """The largest finite one; nan where there is none."""
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else float("nan")


def set_measured(curve: Curve, x: Floats, y: Floats) -> None:
    """Draw the points; nothing where none of them was measured."""
    measured = bool(np.isfinite(y).any())
    curve.setData(x if measured else [], y if measured else [])
