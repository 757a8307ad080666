"""The bar on top: what is run, on what and how large, and the two buttons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QPushButton, QSpinBox, QWidget

from explorer.config import LIMITS, RunConfig
from explorer.gui.controls import captioned, quiet_wheel, select_data, set_item_enabled, silenced
from explorer.gui.device_combo import DeviceCombo
from explorer.gui.language import later, tr
from explorer.gui.path_combo import PathCombo
from explorer.gui.settings import bundled_weights_present, longest_seq
from explorer.gui.wording import add_item, keep
from explorer.models import MODELS
from explorer.results.environment import Environment

# Fields that only a new run can change, and why, for the tooltip of the locked control.
LOCKED_IN_RUN: Mapping[str, str] = MappingProxyType(
    {
        "workload": later("another workload is another run"),
        "model": later("another model has other weights"),
        "weights": later("the weights are already being used"),
        "device": later("the weights lie on the device already"),
        "seed": later("the seed was used when the run began"),
        "text": later("the text is already being read"),
    }
)
CONTROL_HEIGHT_PX = 28
WIDEST_CONTROL_PX = 240
SPIN_FRAME_PX = 44
_MODEL_TIP = later("GPT-2 in one of its sizes, or a folder saved by transformers (safetensors)")
_TEXT_TIP = later(
    "Training text: the documentation and library of the running Python (always here), wikitext-2, or a text file"
)


class RunBar(QWidget):
    """Controls for the fields of RunConfig that are not toggles. It holds no state: ``show_config`` redraws it.

    ``edited`` carries the fields that the person changed; ``start_wanted`` and ``stop_wanted`` the buttons.
    """

    edited = Signal(dict)
    start_wanted = Signal()
    stop_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("run_bar")
        keep(self.setAccessibleName, "Run")
        self._tips: dict[str, str] = {}
        self._controls: dict[str, QWidget] = {}
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 12, 6)
        row.setSpacing(8)

        self.workload = QComboBox()
        add_item(self.workload, later("Train"), "train")
        add_item(self.workload, later("Generate"), "generate")
        self.workload.currentIndexChanged.connect(lambda: self._edit("workload", self.workload.currentData()))
        self._add(
            row, "workload", self.workload, later("Workload"), later("Train on text, or generate text from a prompt")
        )

        self.model = PathCombo(
            tuple((n, f"{n}  ·  {_millions(n)}") for n in MODELS), later("Open folder…"), folder=True
        )
        self.model.chosen.connect(lambda value: self._edit("model", value))
        self._add(row, "model", self.model, later("Model"), _MODEL_TIP, stretch=2)

        self.weights = QComboBox()
        for label, value in (
            (later("Random"), "random"),
            (later("Bundled"), "bundled"),
            (later("Pretrained"), "pretrained"),
        ):
            add_item(self.weights, label, value)
        self.weights.currentIndexChanged.connect(lambda: self._edit("weights", self.weights.currentData()))
        tip = later(
            "Random: drawn from the seed, no network. Bundled: the small model's own. Pretrained: folder or Hub cache"
        )
        self._add(row, "weights", self.weights, later("Weights"), tip)

        self.device = DeviceCombo()
        self.device.currentIndexChanged.connect(lambda: self._edit("device", self.device.currentData()))
        self._add(
            row, "device", self.device, later("Device"), later("Where the model runs; auto is the first GPU"), stretch=2
        )

        tip = later("Sequences a step (training) or texts made side by side (generation)")
        self.batch = self._spin(row, "batch", later("Batch"), tip)
        self.seq = self._spin(row, "seq", later("Sequence"), later("Tokens a training sequence"))
        self.seed = self._spin(
            row, "seed", later("Seed"), later("Fixes random weights, the order of the text, dropout and sampling")
        )

        texts = (("python", tr("Python's docs")), ("wikitext-2", "wikitext-2"))
        self.text = PathCombo(texts, later("Open file…"), folder=False)
        self.text.chosen.connect(lambda value: self._edit("text", value))
        self._add(row, "text", self.text, later("Text"), _TEXT_TIP, stretch=1)

        row.addStretch(1)
        self.start = _button("start_button", later("▶  Start"), later("Start a run (F5)"))
        self.start.clicked.connect(self.start_wanted)
        self.stop = _button("stop_button", later("■  Stop"), later("Stop at the next step (Shift+F5)"))
        self.stop.clicked.connect(self.stop_wanted)
        row.addWidget(self.start)
        row.addWidget(self.stop)

    def show_config(self, config: RunConfig, *, running: bool) -> None:
        """Redraw every control from ``config``; what cannot change within a run is locked while ``running``."""
        select_data(self.workload, config.workload)
        self.model.show_value(config.model)
        select_data(self.weights, config.weights)
        self.device.show_value(config.device)
        self.text.show_value(config.text)
        with silenced(self.batch, self.seq, self.seed):
            self.seq.setMaximum(max(longest_seq(config.model), config.seq))
            self.batch.setValue(config.batch)
            self.seq.setValue(config.seq)
            self.seed.setValue(config.seed)
        for name, control in self._controls.items():
            reason = self._locked(name, config, running=running)
            if reason and control.hasFocus():
                self.stop.setFocus()  # else Qt hands it to the next control, where a stray key changes a number
            control.setEnabled(reason is None)
            control.setToolTip(self._tip(name, reason))
            control.setAccessibleDescription(control.toolTip())
        self._show_weights(config)

    def show_state(self, *, going: bool) -> None:
        """Let the one of the two buttons be pressed that does something; the focus goes along with it."""
        now, before = (self.stop, self.start) if going else (self.start, self.stop)
        now.setEnabled(True)
        if before.hasFocus():
            now.setFocus()
        before.setEnabled(False)

    def show_environment(self, environment: Environment, wanted: str) -> None:
        """List the devices that the worker found."""
        self.device.show_environment(environment, wanted)

    def _locked(self, name: str, config: RunConfig, *, running: bool) -> str | None:
        if config.workload == "generate" and name in ("seq", "text"):
            return tr("Training only.")
        if running and name in LOCKED_IN_RUN:
            return tr("Fixed while a run is going: {why}. Stop first.", why=tr(LOCKED_IN_RUN[name]))
        return None

    def _tip(self, name: str, reason: str | None) -> str:
        words = tr(self._tips[name])
        if name in LIMITS:
            low, high = LIMITS[name]
            words = tr("{what}, {low:g} to {high:g}", what=words, low=low, high=high)
        return f"{words}. {reason}" if reason else words

    def _show_weights(self, config: RunConfig) -> None:
        reason = None
        if config.model != "mini":
            reason = tr("Only the model mini comes with weights")
        elif not bundled_weights_present():
            reason = tr("This copy of the program has no weights for mini beside it")
        set_item_enabled(self.weights, self.weights.findData("bundled"), reason=reason)
        reason = tr("Nobody published weights for mini; choose bundled") if config.model == "mini" else None
        set_item_enabled(self.weights, self.weights.findData("pretrained"), reason=reason)

    def _spin(self, row: QHBoxLayout, name: str, caption: str, tip: str) -> QSpinBox:
        spin = QSpinBox()
        low, high = LIMITS[name]
        spin.setRange(int(low), int(high))
        spin.setKeyboardTracking(False)
        spin.setAccelerated(True)
        spin.setFixedWidth(spin.fontMetrics().horizontalAdvance("0" * min(len(str(int(high))), 6)) + SPIN_FRAME_PX)
        spin.valueChanged.connect(lambda value: self._edit(name, value))
        self._add(row, name, spin, caption, tip)
        return spin

    def _add(self, row: QHBoxLayout, name: str, control: QWidget, caption: str, tip: str, *, stretch: int = 0) -> None:
        kind = "spin" if isinstance(control, QSpinBox) else "combo"
        control.setObjectName(f"{name}_{kind}")
        quiet_wheel(control)
        self._controls[name] = control
        self._tips[name] = tip
        control.setFixedHeight(CONTROL_HEIGHT_PX)
        box = captioned(caption, control, name=caption)
        box.setMaximumWidth(WIDEST_CONTROL_PX)
        row.addWidget(box, stretch)

    def _edit(self, name: str, value: Any) -> None:
        if value is None:
            return
        fields: dict[str, Any] = {name: value}
        if name == "model":
            fields["seq"] = min(self.seq.value(), longest_seq(value))
            weights = self.weights.currentData()
            if value == "mini" and (weights == "pretrained" or self.workload.currentData() == "generate"):
                fields["weights"] = "bundled" if bundled_weights_present() else "random"
            elif value != "mini" and weights == "bundled":
                fields["weights"] = "random"
        self.edited.emit(fields)


def _button(name: str, text: str, tip: str) -> QPushButton:
    button = QPushButton()
    button.setObjectName(name)
    keep(button.setText, text)
    keep(button.setToolTip, tip)
    keep(button.setAccessibleName, tip)
    button.setMinimumSize(84, 40)
    return button


def _millions(model: str) -> str:
    return f"{MODELS[model].parameters / 1e6:,.0f} M"
