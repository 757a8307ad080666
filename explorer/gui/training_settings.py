"""The optimizer's numbers: learning rate, weight decay, clipping, and fp16's first loss scale."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QWidget

from explorer.config import LIMITS, RunConfig
from explorer.gui.language import later, tr
from explorer.gui.wording import keep

# Field, label, and what it is.
FIELDS: tuple[tuple[str, str, str], ...] = (
    ("lr", later("Learning rate"), later("AdamW's step size")),
    ("weight_decay", later("Weight decay"), later("AdamW's pull of weights towards zero, per step and learning rate")),
    ("grad_clip", later("Gradient clip"), later("Largest norm of the gradient; 0 turns clipping off")),
    ("init_scale", later("First loss scale"), later("What precision fp16 multiplies the loss by at first")),
)
FIELD_WIDTH_PX = 128


class TrainingSettings(QWidget):
    """A line for each number, written as a person writes it (5e-5). Holds no state: ``show_config`` redraws it.

    ``edited`` carries the field that the person changed; a value that is no number goes along as it was typed.
    """

    edited = Signal(dict)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: RunConfig | None = None
        self._lines: dict[str, QLineEdit] = {}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 2, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(0, 1)
        for row, (name, title, _) in enumerate(FIELDS):
            line = QLineEdit()
            line.setObjectName(f"{name}_edit")
            keep(line.setAccessibleName, title)
            line.setFixedWidth(FIELD_WIDTH_PX)
            line.setAlignment(Qt.AlignmentFlag.AlignRight)
            line.editingFinished.connect(lambda name=name: self._edit(name))
            label = QLabel()
            keep(label.setText, title)
            label.setBuddy(line)
            grid.addWidget(label, row, 0)
            grid.addWidget(line, row, 1)
            self._lines[name] = line

    def show_config(self, config: RunConfig, *, running: bool) -> None:
        """Redraw every line; generation uses none of them, and a loss scale is first only once."""
        self._shown = config
        for (name, _, what), line in zip(FIELDS, self._lines.values(), strict=True):
            low, high = LIMITS[name]
            line.setToolTip(tr("{what}. {low:g} to {high:g}.", what=tr(what), low=low, high=high))
            line.setText(f"{getattr(config, name):g}")
            fixed = running and name == "init_scale"
            line.setEnabled(config.workload == "train" and not fixed)
            words = tr("Fixed while a run is going.") if fixed else ""
            line.setAccessibleDescription(words if config.workload == "train" else tr("Training only."))

    def _edit(self, name: str) -> None:
        text = self._lines[name].text().strip()
        if self._shown is None or text == f"{getattr(self._shown, name):g}":
            return
        try:
            self.edited.emit({name: float(text)})
        except ValueError:
            self.edited.emit({name: text})
