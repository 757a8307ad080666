"""The line at the bottom: the device and what it reads now, versions, and the worker's state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QStatusBar, QWidget

from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import tabular
from explorer.gui.wording import keep
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.sample import Sample

STATE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "absent": later("no worker; Start opens one"),
        "starting": later("worker starting"),
        "ready": later("worker ready"),
        "running": later("running"),
        "stopping": later("stopping"),
        "paused": later("paused for a profile"),
    }
)


class StatusBar(QStatusBar):
    """Readings have fields of fixed width: a changing figure moves nothing beside it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status_bar")
        self.setSizeGripEnabled(False)
        self._environment: Environment | None = None
        self.device = self._field("status_device", later("Device"), "")
        self.temperature = self._field("status_temperature", later("Temperature of the device"), "000 °C")
        self.power = self._field("status_power", later("Power drawn by the device"), "0000 W")
        self.clock = self._field("status_clock", later("Clock of the device's multiprocessors"), "00000 MHz")
        self.versions = QLabel()
        self.versions.setObjectName("status_versions")
        keep(self.versions.setAccessibleName, "Versions")
        self.versions.setProperty("role", "muted")
        self.state = QLabel()
        self.state.setObjectName("status_state")
        keep(self.state.setAccessibleName, "Worker")
        self.state.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.state.setContentsMargins(0, 0, 8, 0)
        self.state.setMinimumWidth(self.fontMetrics().horizontalAdvance(tr(STATE_WORDS["absent"])) + 16)
        self.addPermanentWidget(self.versions)
        self.addPermanentWidget(self.state)
        self.show_state("starting")
        self.device.setText(tr("Looking for devices…"))

    def show_state(self, state: str) -> None:
        """Say what the worker is doing; ``state`` is a Bridge.State, or paused."""
        keep(self.state.setText, STATE_WORDS[state])

    def show_environment(self, environment: Environment) -> None:
        """Show versions, with what does not fit in the tooltip."""
        named = (
            ("torch", environment.torch),
            ("CUDA", environment.cuda),
            ("triton", environment.triton),
            ("driver", environment.driver),
        )
        self.versions.setText("   ".join(f"{name} {version}" for name, version in named if version))
        self._environment = environment
        findings = [f"{tr(f.severity)}: {from_below(f.text)}" for f in environment.findings if f.severity != "ok"]
        self.versions.setToolTip("\n".join(findings) or tr("These versions fit each other"))

    def reword(self) -> None:
        """Show the judgement on the versions in the language of the moment."""
        if self._environment is not None:
            self.show_environment(self._environment)

    def show_device(self, device: DeviceInfo) -> None:
        """Name the device; readings that it does not give are hidden with the reason in its tooltip."""
        self.device.setText(device.name)
        self.device.setToolTip(from_below(device.nvml_problem or "") or tr("Device"))
        for label in (self.temperature, self.power, self.clock):
            label.setVisible(device.kind == "cuda" and device.nvml_problem is None)
            label.clear()

    def show_readings(self, sample: Sample) -> None:
        """Show what the device read during ``sample``; what was not read is left blank."""
        self.temperature.setText(_reading(sample.temperature_c, "°C"))
        self.power.setText(_reading(sample.power_w, "W"))
        self.clock.setText(_reading(sample.sm_clock_mhz, "MHz"))

    def clear_readings(self) -> None:
        """Show none: they were taken beside steps, and no step runs now."""
        for label in (self.temperature, self.power, self.clock):
            label.clear()

    def _field(self, object_name: str, name: str, widest: str) -> QLabel:
        label = QLabel()
        label.setObjectName(object_name)
        keep(label.setAccessibleName, name)
        keep(label.setToolTip, name)
        label.setFont(tabular(label.font()))
        label.setContentsMargins(8, 0, 8, 0)
        if widest:
            label.setFixedWidth(self.fontMetrics().horizontalAdvance(widest) + 24)
        self.addWidget(label)
        return label


def _reading(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if math.isfinite(value) else ""
