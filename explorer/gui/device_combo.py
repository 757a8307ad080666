"""The list of devices: what the worker found, or what is remembered until it has looked."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QWidget

from explorer.gui.controls import select_data, silenced
from explorer.gui.language import later, tr
from explorer.gui.wording import add_item
from explorer.results.environment import Environment


class DeviceCombo(QComboBox):
    """itemData is RunConfig.device: auto, cpu or cuda:N."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
        self._known = False
        with silenced(self):
            add_item(self, later("Detecting…"), "auto")

    def show_value(self, device: str) -> None:
        """Select ``device``; before the worker has looked, what is remembered is listed as it was written."""
        if select_data(self, device):
            return
        with silenced(self):
            self.addItem(device if self._known else tr("{device} (detecting…)", device=device), device)
            self.setCurrentIndex(self.count() - 1)

    def show_environment(self, environment: Environment, wanted: str) -> None:
        """List ``environment``'s devices and select ``wanted``, or auto where that is not among them."""
        self._known = True
        with silenced(self):
            self.clear()
            self.addItem(tr("Auto: {device}", device=environment.devices[0].name), "auto")
            for device in environment.devices:
                label = "CPU" if device.kind == "cpu" else device.id
                self.addItem(f"{label}: {device.name}", device.id)
            self.setCurrentIndex(max(0, self.findData(wanted)))
        self.view().setMinimumWidth(self.view().sizeHintForColumn(0) + 24)
