"""The live curves: throughput, memory, loss and step time of the run that is going."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from explorer.config import RunConfig
from explorer.gui.annotations import Timeline
from explorer.gui.axes import time_end
from explorer.gui.controls import ElidedLabel
from explorer.gui.language import tr
from explorer.gui.loss_pane import LossPane
from explorer.gui.memory_pane import MemoryPane
from explorer.gui.palette import theme
from explorer.gui.pane import WAITING_WORDS, Pane
from explorer.gui.readout import Legend, coloured
from explorer.gui.run_curves import RunCurves
from explorer.gui.step_time_pane import StepTimePane
from explorer.gui.throughput_pane import ThroughputPane
from explorer.gui.wording import keep
from explorer.results.environment import DeviceInfo
from explorer.results.export import device_name
from explorer.results.log import RunLog
from explorer.results.sample import Sample, Segment

REDRAW_MS = 100
READOUT_S = 0.25
"""Readouts change four times a second at most: faster ones cannot be read."""
SHORTEST_S = 2.0
"""The time axis shows at least this much while a run goes on."""


class PlotsPanel(QWidget):
    """Draws the run begun or shown last from ``log``, at most ten times a second.

    ``add_samples`` only marks it as changed.
    """

    def __init__(self, log: RunLog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._log = log
        self._dark = False
        self._run_id: int | None = None
        self._curves: RunCurves | None = None
        self._timeline = Timeline()
        self._device: DeviceInfo | None = None
        self._changed = False
        self._following = True
        self._frozen = False
        self._redraws = True
        self._ended = False
        self._linking = False
        self._readouts_at_s = 0.0
        self.redraw_timer = QTimer(self)
        self.redraw_timer.setInterval(REDRAW_MS)
        self.redraw_timer.timeout.connect(self._tick)

        legend = Legend()
        self._progress = ElidedLabel()
        self._progress.setObjectName("progress_label")
        self._progress.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        # Legend or progress, in one place: no steps come while there is progress to report.
        self._side = QStackedWidget()
        self._side.addWidget(legend)
        self._side.addWidget(self._progress)
        self._follow = QToolButton()
        self._follow.setObjectName("follow_button")
        keep(self._follow.setText, "Follow")
        keep(self._follow.setToolTip, "Show the whole run again, and go on with it (or double-click a plot)")
        self._follow.hide()
        self._follow.clicked.connect(self.follow)

        self.throughput = ThroughputPane(legend, self._side, self._follow)
        self.memory = MemoryPane()
        self.loss = LossPane()
        self.step_time = StepTimePane()
        self._panes: tuple[Pane, ...] = (self.throughput, self.memory, self.loss, self.step_time)
        below = QHBoxLayout()
        below.setSpacing(8)
        below.addWidget(self.loss, 1)
        below.addWidget(self.step_time, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 4, 8, 4)
        column.setSpacing(4)
        column.addWidget(self.throughput, 5)
        column.addWidget(self.memory, 3)
        column.addLayout(below, 3)
        for pane in self._panes:
            pane.plot.zoomed.connect(self._taken_in_hand)
            pane.plot.reset_wanted.connect(self.follow)
            pane.plot.pointed.connect(self._point)
            pane.plot.getPlotItem().sigXRangeChanged.connect(self._link)
        self.loss.chosen.connect(self.reword)
        self.apply_theme(self._dark)

    # ---- what the window tells it

    def begin_run(self, run_id: int, config: RunConfig) -> None:
        """Clear the plots for run ``run_id``, which the log has begun.

        Raises:
            ValueError: the log does not know this run.
        """
        self._curves = RunCurves(self._log.run(run_id).columns)
        self._curves.hold(self._frozen)
        self._run_id = run_id
        self._timeline = Timeline()
        self._ended = False
        self._readouts_at_s = 0.0
        self._point(None)
        self.memory.set_device(self._device)
        self.memory.set_cpu(config.device == "cpu" or (self._device is not None and self._device.kind == "cpu"))
        for pane in self._panes:
            pane.begin(run_id, config.workload)
            pane.plot.annotations.show_timeline(self._timeline)
        self._dress()
        self.follow()

    def add_segment(self, run_id: int, config: RunConfig, segment: Segment) -> None:
        """Mark where the setting changed, from the segment's first step on."""
        if run_id == self._run_id:
            self._timeline.name_segment(segment.index, segment.changes)
            self.throughput.set_segment(segment, device_name(self._log.run(run_id).environment, config))
            self.memory.set_cpu(config.device == "cpu")

    def add_samples(self, run_id: int, samples: Sequence[Sample]) -> None:
        """Samples that the log has just taken in; drawn at the next redraw."""
        if run_id == self._run_id:
            for sample in samples:
                self._timeline.add(sample)
            self._mark_changed()

    def mark(self, text: str) -> None:
        """Mark the end of the last step with ``text``."""
        self._timeline.mark(text)
        self._mark_changed()

    def show_progress(self, text: str | None) -> None:
        """Say what the run is doing while no steps come; None when that is over."""
        self._progress.setText(text or "")
        self._progress.setToolTip(text or "")
        self._side.setCurrentIndex(1 if text else 0)
        if self._curves is not None and not self._curves.last_s():
            self.throughput.plot.show_words(text or WAITING_WORDS)

    def end_run(self, run_id: int) -> None:
        """Draw the last samples and leave the picture as it is."""
        if run_id == self._run_id:
            self._ended = True
            self._readouts_at_s = 0.0
            self.show_progress(None)
            if self._curves is not None and not self._curves.last_s():
                for pane in self._panes:
                    pane.teach()
            self._mark_changed()

    def show_run(self, run_id: int) -> None:
        """Draw the whole of a run that is not going, such as a stored one.

        Raises:
            ValueError: the log does not know this run.
        """
        record = self._log.run(run_id)
        config = record.segments[-1].config if record.segments else record.config
        self.begin_run(run_id, config)
        for kept in record.segments:
            self._timeline.name_segment(kept.segment.index, kept.segment.changes)
        columns = record.columns.columns()
        self._timeline.add_columns(columns)
        for mark in record.marks:
            before = columns["step"] <= mark.after_step
            self._timeline.mark(tr(mark.text), at_s=float(columns["time_s"][before].max(initial=0.0)))
        self.memory.set_cpu(config.device == "cpu")
        if record.environment is not None:
            with contextlib.suppress(ValueError):  # a device that was asked for and was not there
                self.memory.set_device(record.environment.device(config.device))
        self.end_run(run_id)

    def set_frozen(self, frozen: bool) -> None:
        """Keep the picture as it is now; samples go on being stored. Zooming still works."""
        self._frozen = frozen
        if self._curves is not None:
            self._curves.hold(frozen)
        self._dress()
        self._mark_changed()

    def set_redraw(self, on: bool) -> None:
        """Turn drawing off and on: what the window's share in step times is measured with."""
        self._redraws = on
        self._mark_changed()

    def set_device(self, device: DeviceInfo | None) -> None:
        """Whose memory limit is drawn."""
        self._device = device
        self.memory.set_device(device)
        self._mark_changed()

    def follow(self) -> None:
        """Show the whole run again, and go on with it."""
        self._following = True
        self._follow.hide()
        for pane in self._panes:
            pane.plot.let_go()
        self._mark_changed()

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        coloured(self._progress, theme(dark).text)
        self._dress()

    def reword(self) -> None:
        """Show figures and legends in the language of the moment."""
        self._readouts_at_s = 0.0
        self._dress()
        self._mark_changed()

    # ---- drawing

    def redraw(self) -> None:
        """Draw what is stored now."""
        curves = self._curves
        if curves is None:
            return
        last_s = curves.last_s()
        if self._following:
            end_s = max(last_s, 1e-3) if self._ended else time_end(max(last_s, SHORTEST_S))
            self._show_times(curves.first_s(), end_s)
        if last_s > 0:
            low_s, high_s = self.throughput.plot.time_range()
            for pane in self._panes:
                pane.draw(curves, low_s, high_s)
                pane.plot.annotations.update()
        now_s = time.monotonic()
        if now_s - self._readouts_at_s >= READOUT_S:
            self._readouts_at_s = now_s
            figures = curves.figures()
            for pane in self._panes:
                pane.show_figures(figures)

    def _dress(self) -> None:
        for pane in self._panes:
            pane.dress(self._run_id, dark=self._dark, frozen=self._frozen)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._mark_changed()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.redraw_timer.stop()

    def _mark_changed(self) -> None:
        self._changed = True
        if self.isVisible() and not self.redraw_timer.isActive():
            self.redraw_timer.start()

    def _tick(self) -> None:
        if not self._changed:
            self.redraw_timer.stop()
        elif self._redraws:
            self._changed = False
            self.redraw()

    # ---- one time axis for all

    def _show_times(self, low_s: float, high_s: float) -> None:
        self._linking = True
        for pane in self._panes:
            pane.plot.show_times(low_s, high_s)
        self._linking = False

    def _link(self, _: object, times: tuple[float, float]) -> None:
        # pyqtgraph's own linking aligns plots of different widths by their pixels, so that the narrow ones would
        # show a part of the time only.
        if not self._linking:
            self._show_times(*times)
            self._mark_changed()

    def _point(self, time_s: float | None) -> None:
        """Stand a line in every plot at the step that ``time_s`` is within, each with what it shows of that step."""
        row = None if time_s is None or self._curves is None else self._curves.row_at(time_s)
        for pane in self._panes:
            if row is None or self._curves is None:
                pane.plot.show_crosshair(None)
            else:
                pane.plot.show_crosshair(self._curves.value("time_s", row), pane.told(self._curves, row))

    def _taken_in_hand(self) -> None:
        self._following = False
        self._follow.show()
        self._mark_changed()
