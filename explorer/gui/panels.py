"""The panels of the window, by name."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.gui.compare_panel import ComparePanel
from explorer.gui.diagnosis_panel import DiagnosisPanel
from explorer.gui.lab_panel import LabPanel
from explorer.gui.overview_panel import OverviewPanel
from explorer.gui.pin_bar import PinBar
from explorer.gui.plots_panel import PlotsPanel
from explorer.gui.run_bar import RunBar
from explorer.gui.runs_table import RunsTable
from explorer.gui.series_panel import SeriesPanel
from explorer.gui.status_bar import StatusBar
from explorer.gui.text_panel import TextPanel
from explorer.gui.toggles_panel import TogglesPanel


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """What shows the configuration and the results."""

    run_bar: RunBar
    toggles: TogglesPanel
    plots: PlotsPanel
    pins: PinBar
    compare: ComparePanel
    overview: OverviewPanel
    lab: LabPanel
    series: SeriesPanel
    text: TextPanel
    diagnosis: DiagnosisPanel
    runs: RunsTable
    status: StatusBar
