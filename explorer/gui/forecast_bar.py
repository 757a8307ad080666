"""The memory that Start will take, by part, as a bar against what is free."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from explorer.config import RunConfig
from explorer.gui.language import from_below, tr
from explorer.gui.palette import Theme, blend, gib, run_colour, theme
from explorer.gui.readout import coloured
from explorer.gui.wording import keep
from explorer.models import shape_of
from explorer.optimizations.forecasting import largest_batch, memory_forecast
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import CONTEXT_BYTES, Forecast

HEIGHT_PX = 10
SHARES = (1.0, 0.84, 0.68, 0.52, 0.38, 0.26, 0.16)
"""How much colour each part has, from the ground up, CUDA's context last."""


class ForecastBar(QWidget):
    """Holds no state but what ``show_config`` and ``show_measured`` say. Nothing is shown where nothing is forecast."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        keep(self.setAccessibleName, "Memory forecast")
        self._dark = False
        self._expected: Forecast | None = None
        self._of: tuple[RunConfig, DeviceInfo | None] | None = None
        self._words = QLabel()
        self._words.setObjectName("forecast_words")
        self._words.setWordWrap(True)
        # Room for two lines, whether they are needed or not: what is above must not move with a setting.
        self._words.setAlignment(Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft)
        self._words.setFixedHeight(2 * self._words.fontMetrics().lineSpacing())
        self._bar = _Bar()
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 6, 12, 8)
        column.setSpacing(4)
        column.addWidget(self._words)
        column.addWidget(self._bar)
        self._fits = True
        self.hide()

    def words(self) -> str:
        return self._words.text()

    def show_config(self, config: RunConfig, device: DeviceInfo | None) -> None:
        """Forecast ``config`` on ``device``; what was measured of it stays until one of them changes."""
        if self._of == (config, device):
            return
        self._of = (config, device)
        free_bytes = None if device is None else device.free_for_a_run_bytes
        shape = shape_of(config.model) if config.workload == "train" else None
        self._expected = None
        if free_bytes is None or shape is None:
            self.hide()
            return
        expected = self._expected = memory_forecast(config, shape)
        self._fits = expected.needed_bytes <= free_bytes
        if self._fits:
            words = tr(
                "Memory: about {peak} in a step, {free} free", peak=gib(expected.peak_bytes), free=gib(free_bytes)
            )
        else:
            words = tr(
                "Memory: about {peak} in a step will not fit into {free}; largest batch that does: {batch}",
                peak=gib(expected.peak_bytes),
                free=gib(free_bytes),
                batch=largest_batch(config, shape, free_bytes),
            )
        parts = [*expected.parts(), ("context", CONTEXT_BYTES)]
        self._words.setText(words)
        self._words.setToolTip("\n".join(f"{from_below(name)}: {gib(size)}" for name, size in parts))
        self._bar.show_parts([size for _, size in parts], free_bytes)
        self._bar.setToolTip(self._words.toolTip())
        self.setAccessibleDescription(words)
        self.apply_theme(self._dark)
        self.show()

    def show_measured(self, peak_bytes: int) -> None:
        """Hold the forecast against the peak that steps of the same configuration had."""
        if self._expected is None or peak_bytes < 0:
            return
        off = self._expected.peak_bytes / peak_bytes - 1
        self._words.setText(
            tr(
                "Memory: {measured} in a step; the forecast was {peak} ({off})",
                measured=gib(peak_bytes),
                peak=gib(self._expected.peak_bytes),
                off=f"{off:+.1%}".replace("-0.0%", "+0.0%"),
            )
        )
        self.setAccessibleDescription(self._words.text())

    def apply_theme(self, dark: bool) -> None:
        self._dark = dark
        look = theme(dark)
        coloured(self._words, look.text if self._fits else look.problem)
        self._bar.apply_theme(look, dark)


class _Bar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._parts: list[int] = []
        self._free_bytes = 1
        self._dark = False
        self._look: Theme = theme(dark=False)

    def show_parts(self, parts: list[int], free_bytes: int) -> None:
        self._parts, self._free_bytes = parts, free_bytes
        self.update()

    def apply_theme(self, look: Theme, dark: bool) -> None:
        self._look, self._dark = look, dark
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        whole = max(sum(self._parts), self._free_bytes)
        scale = self.width() / whole
        ground, colour = QColor(self._look.background), run_colour(0, self._dark)
        painter.fillRect(self.rect(), blend(QColor(self._look.grid), ground, 0.5))
        left = 0.0
        for size, share in zip(self._parts, SHARES, strict=False):
            painter.fillRect(QRectF(left, 0, size * scale, self.height()), blend(colour, ground, share))
            left += size * scale
        limit = min(self._free_bytes * scale, self.width() - 1.0)
        painter.setPen(QPen(QColor(self._look.problem), 2))
        painter.drawLine(QRectF(limit, 0, 0, self.height()).topLeft(), QRectF(limit, 0, 0, self.height()).bottomLeft())
        painter.end()
