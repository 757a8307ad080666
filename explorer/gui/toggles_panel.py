"""The panel of optimizations, built from the registry and grouped by tier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from explorer.config import RunConfig, Workload
from explorer.gui.controls import divided
from explorer.gui.forecast_bar import ForecastBar
from explorer.gui.language import from_below, later, tr
from explorer.gui.preset_bar import PresetBar
from explorer.gui.toggle_details import ToggleDetails
from explorer.gui.toggle_row import Remedy, ToggleRow
from explorer.gui.training_settings import TrainingSettings
from explorer.gui.wording import keep
from explorer.optimizations.base import TIERS, Optimization, Tier
from explorer.optimizations.registry import OPTIMIZATIONS, by_name, levels_of, problems, with_level
from explorer.results.environment import DeviceInfo

WORKLOAD_WORDS: Mapping[Workload, str] = MappingProxyType({"train": later("training"), "generate": later("generation")})
TIER_WORDS: Mapping[Tier, str] = MappingProxyType(
    {
        "framework": later("FRAMEWORK"),
        "algorithm": later("ALGORITHM"),
        "system": later("SYSTEM"),
        "hardware": later("HARDWARE"),
    }
)


class TogglesPanel(QWidget):
    """One row a toggle, and below them the details of the one that is looked at.

    ``edited`` carries the RunConfig that the person asked for.
    """

    edited = Signal(object)

    def __init__(self, config: RunConfig, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._config = config
        self._device: DeviceInfo | None = None
        self._rows: dict[str, ToggleRow] = {}
        rows = QWidget()
        column = QVBoxLayout(rows)
        column.setContentsMargins(12, 8, 12, 8)
        column.setSpacing(4)
        for tier in TIERS:
            members = [o for o in OPTIMIZATIONS if o.tier == tier]
            if members:
                heading = QLabel()
                keep(heading.setText, TIER_WORDS[tier])
                heading.setProperty("role", "heading")
                column.addWidget(heading)
            for optimization in members:
                column.addWidget(self._row(optimization))
        column.addSpacing(8)
        heading = QLabel()
        keep(heading.setText, "TRAINING")
        heading.setProperty("role", "heading")
        column.addWidget(heading)
        self.training = TrainingSettings()
        column.addWidget(self.training)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(rows)
        scroll.setMinimumWidth(rows.minimumSizeHint().width() + scroll.verticalScrollBar().sizeHint().width())
        self.details = ToggleDetails()
        self.details.setContentsMargins(12, 0, 12, 8)
        splitter = divided(Qt.Orientation.Vertical, (scroll, 3), (self.details, 2))
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        self.presets = PresetBar()
        outer.addWidget(self.presets)
        outer.addWidget(splitter, 1)
        self.forecast = ForecastBar()
        outer.addWidget(self.forecast)
        self.details.show_toggle(OPTIMIZATIONS[0])
        self.show_config(config)

    def show_config(self, config: RunConfig) -> None:
        """Redraw every toggle from ``config``."""
        self._config = config
        self.forecast.show_config(config, self._device)
        levels = levels_of(config)
        found = problems(config, self._device) if self._device is not None else {}
        for name, row in self._rows.items():
            row.show_level(
                levels[name],
                idle=self._idle(by_name(name)),
                problem=from_below(found[name]) if name in found else None,
                remedy=self._remedy(name),
            )

    def show_device(self, device: DeviceInfo) -> None:
        """Grey what cannot run on ``device``."""
        self._device = device
        for name, row in self._rows.items():
            row.show_levels(partial(_unavailable, by_name(name), device))
        self.show_config(self._config)

    def reword(self) -> None:
        """Show every toggle in the language of the moment."""
        self.details.reword()
        if self._device is not None:
            self.show_device(self._device)
        else:
            self.show_config(self._config)

    def _row(self, optimization: Optimization) -> ToggleRow:
        row = ToggleRow(optimization)
        name = optimization.name
        row.chosen.connect(lambda level: self.edited.emit(with_level(self._config, name, level)))
        row.looked_at.connect(lambda: self.details.show_toggle(optimization))
        row.remedy_wanted.connect(lambda remedy: self.edited.emit(with_level(self._config, remedy.name, remedy.level)))
        self._rows[name] = row
        return row

    def _idle(self, optimization: Optimization) -> str | None:
        if self._config.workload in optimization.workloads:
            return None
        own = tr(" and ").join(tr(WORKLOAD_WORDS[w]) for w in optimization.workloads)
        return tr("Plays a part in {workload} only.", workload=own)

    def _remedy(self, name: str) -> Remedy | None:
        """The change of the other toggle that lets ``name`` run at its level, if one can run here."""
        if self._device is None:
            return None
        levels = levels_of(self._config)
        for need in by_name(name).needs:
            if not need.applies(levels[name], levels) or levels[need.other] in need.allowed:
                continue
            other = by_name(need.other)
            # The last that is allowed: the newer format where several would do.
            for level in reversed(need.allowed):
                if other.unavailable(level, self._device) is None:
                    return Remedy(
                        name=need.other,
                        level=level,
                        text=tr("Set {toggle} to {level}", toggle=tr(other.label).lower(), level=level),
                        reason=tr(need.reason),
                    )
        return None


def _unavailable(optimization: Optimization, device: DeviceInfo, level: str) -> str | None:
    reason = optimization.unavailable(level, device)
    return None if reason is None else from_below(reason)
