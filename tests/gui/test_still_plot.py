"""Plots behind others cost nothing before they are shown."""

from __future__ import annotations

import pyqtgraph as pg
from window_bench import Bench

from explorer.gui.still_plot import StillPlot


def furnished(plot: StillPlot) -> bool:
    return any(isinstance(item, pg.PlotItem) for item in plot.items())


def test_that_a_plot_is_made_when_it_is_first_shown(bench: Bench) -> None:
    window = bench.open()
    behind = [plot for plot in window.findChildren(StillPlot) if not plot.isVisible()]
    assert len(behind) > 10
    assert not [plot.objectName() for plot in behind if furnished(plot)]
    window._views.show_view(window.panels.compare)
    shown = [plot for plot in behind if plot.isVisible()]
    assert {plot.objectName() for plot in shown} == {"blocks_plot", "interval_plot"}
    assert all(furnished(plot) for plot in shown)
