"""Memory of the device, in bands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from PySide6.QtGui import QColor

from explorer.config import Workload
from explorer.gui.axes import PlainAxis
from explorer.gui.envelope import Floats
from explorer.gui.language import from_below, later, tr
from explorer.gui.live_plot import LivePlot
from explorer.gui.palette import NOTHING, blend, gib, run_colour, theme
from explorer.gui.pane import Pane, highest, set_measured
from explorer.gui.readout import Key, Legend, Readout
from explorer.gui.run_curves import Band, Figures, RunCurves
from explorer.gui.wording import keep
from explorer.results.environment import DeviceInfo
from explorer.results.memory import bands_problem

BAND_WORDS: Mapping[Band, str] = MappingProxyType(
    {"others": later("others"), "context": later("context"), "driver": later("driver")}
)


class MemoryPane(Pane):
    """Memory of the device in bands, one on the other; on the CPU the worker's resident memory."""

    idle_words = later(
        "What a step needs at its peak, what the allocator holds, and what is in use on the device, by whom."
    )
    # Each is filled down to zero and hides the lower part of those before. How much of the run's colour it has; None:
    # grey, since it is not the run's.
    _SHARES: Mapping[Band, float | None] = MappingProxyType(
        {"unsplit": 0.14, "driver": None, "others": None, "context": 0.2, "cached": 0.36, "allocated": 0.6}
    )
    _USED = later("Memory in use on the device, by whomever; the driver's reserve is not counted")
    _GREYS: Mapping[Band, float] = MappingProxyType({"driver": 0.55, "others": 0.28})

    def __init__(self) -> None:
        widest = "888.8 GiB"
        self.peak_readout = Readout(
            later("Largest sum of live tensors within a step"), later("in a step"), widest=widest
        )
        self.held_readout = Readout(
            later("What the allocator holds; the band is its cache, above the step's peak"),
            later("held"),
            widest=widest,
        )
        self.used_readout = Readout(self._USED, later("in use"), widest=widest)
        axis = PlainAxis("left", later("GiB"))
        plot = LivePlot(name="memory_plot", title=later("Memory"), axis=axis, from_zero=True, words=False)
        self._legend = Legend()
        keep(
            self._legend.setToolTip,
            "others: what other processes hold, by NVML. context: CUDA's context, code and libraries' workspaces, "
            "NVML's figure for the worker less what its allocator holds. driver: the driver's own reserve, which no "
            "process can use.",
        )
        super().__init__(later("Memory"), plot, (self.peak_readout, self.held_readout, self.used_readout), self._legend)
        self._of: Mapping[Band, Readout] = {
            "allocated": self.peak_readout,
            "cached": self.held_readout,
            "unsplit": self.used_readout,
        }
        self._bands = {band: plot.add_curve() for band in self._SHARES}
        self._device: DeviceInfo | None = None
        self._on_cpu = False
        self._driver_bytes = 0
        self._look = theme(dark=False)
        self._fills: dict[Band, QColor] = {}
        self._figures = Figures()

    def legend_words(self) -> list[str]:
        """The bands beyond the allocator's, with their sizes."""
        return self._legend.words()

    def set_device(self, device: DeviceInfo | None) -> None:
        self._device = device

    def set_cpu(self, on_cpu: bool) -> None:
        """Whether the run is on the CPU, where there is no allocator to ask."""
        self._on_cpu = on_cpu
        self.peak_readout.setVisible(not on_cpu)
        self.held_readout.setVisible(not on_cpu)

    def begin(self, run_id: int, workload: Workload) -> None:
        super().begin(run_id, workload)
        for readout in self._readouts:
            readout.show_number(NOTHING)
        self._driver_bytes = 0
        self._show_apart(Figures())

    def draw(self, curves: RunCurves, low_s: float, high_s: float) -> None:
        highest_gib = 0.0
        for band, curve in self._bands.items():
            x, y = curves.memory_gib(band, low_s, high_s, self.plot.bins())
            set_measured(curve, *_corners(x, y))
            highest_gib = float(np.fmax(highest_gib, highest(y)))
        # torch leaves the driver's reserve out of the total.
        limit_bytes = self._device.total_memory_bytes + self._driver_bytes if self._device is not None else 0
        limit_gib = limit_bytes / 2**30
        # A limit far above would press the bands flat; the header says it anyway.
        near = highest_gib > 0.4 * limit_gib > 0
        self.plot.show_limit(limit_gib if near else None)
        self.plot.fit(0, max(1.15 * highest_gib, 1.05 * limit_gib if near else 0.0))
        self.plot.show_words(None if highest_gib else later("Memory is not measured here."))

    def show_figures(self, figures: Figures) -> None:
        self.peak_readout.show_number(gib(figures.peak_allocated_bytes))
        self.held_readout.show_number(gib(figures.reserved_bytes))
        used = gib(figures.device_used_bytes)
        if self._device is None:
            self.used_readout.show_number(used, later("resident in the worker") if self._on_cpu else later("in use"))
        else:
            words = later("resident in the worker of {whole}") if self._on_cpu else later("in use of {whole}")
            self.used_readout.show_number(used, words, whole=gib(self._device.total_memory_bytes))
        self._show_apart(figures)

    def told(self, curves: RunCurves, row: int) -> str:
        peak = curves.value("peak_allocated_bytes", row)
        if peak >= 0:
            return f"{gib(peak)} {tr('in a step')}"
        where = tr("resident in the worker") if self._on_cpu else tr("in use")
        return f"{gib(curves.value('device_used_bytes', row))} {where}"

    def _show_apart(self, figures: Figures) -> None:
        """The bands beyond the allocator's, or why there are none."""
        self._figures = figures
        sizes: tuple[tuple[Band, int], ...] = (
            ("others", figures.other_processes_bytes),
            ("context", figures.context_bytes),
            ("driver", figures.driver_reserved_bytes),
        )
        keys = tuple(
            Key(words=f"{tr(BAND_WORDS[band])} {gib(size)}", colour=self._fills[band], width=8.0)
            for band, size in sizes
            if size >= 0 and band in self._fills
        )
        self._legend.show_keys(keys, self._look)
        told_apart = figures.other_processes_bytes >= 0 and figures.context_bytes >= 0
        self.used_readout.show_patch(None if told_apart else self._fills.get("unsplit"))
        why = None
        if self._device is not None and figures.device_used_bytes >= 0:
            why = bands_problem(self._device, told=figures.context_bytes >= 0)
        used = tr(self._USED)
        words = used if why is None else tr("{used}.\nNot in bands: {why}.", used=used, why=from_below(why))
        self.used_readout.setToolTip(words)
        self._driver_bytes = max(self._driver_bytes, figures.driver_reserved_bytes)

    def dress(self, run_id: int | None, *, dark: bool, frozen: bool) -> None:
        super().dress(run_id, dark=dark, frozen=frozen)
        if run_id is None:
            return
        self._look = look = theme(dark)
        ground = QColor(look.background)
        for band, share in self._SHARES.items():
            colour = run_colour(run_id, dark) if share is not None else QColor(look.muted)
            share = self._GREYS[band] if share is None else share
            fill = blend(colour, ground, share)
            self.plot.dress(self._bands[band], blend(colour, ground, min(1.0, share + 0.35)), fill=fill)
            self._fills[band] = fill
            if band in self._of:
                self._of[band].show_patch(fill)
        self._show_apart(self._figures)


def _corners(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The points without those inside a level stretch: memory seldom moves, and a filled curve is dear."""
    if len(y) < 3:
        return x, y
    moves = y[1:] != y[:-1]
    kept = np.concatenate(([True], moves[:-1] | moves[1:], [True]))
    return x[kept], y[kept]
