"""Prompt, sampling controls and the text as it streams."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QFont, QGuiApplication, QResizeEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from explorer.config import RunConfig
from explorer.gui.language import later, tr
from explorer.gui.palette import NOTHING, milliseconds, monospace, si_number, theme
from explorer.gui.prompt_box import PromptBox
from explorer.gui.readout import Caption, Readout
from explorer.gui.run_curves import READOUT_WINDOW_S
from explorer.gui.sampling import SamplingControls
from explorer.gui.text_pair import TextPair
from explorer.gui.text_sections import LineBreaker, TextSections
from explorer.gui.token_times_plot import LEAST_HEIGHT_PX, TokenTimesPlot
from explorer.gui.wording import keep
from explorer.results.sample import Sample

READOUT_S = 0.25
TEXT_TO_PLOT = 3
"""The text is so many times as high as the curve of times, which is there only where that is enough to be drawn."""
MOST_BLOCKS = 20_000
"""Lines kept on the screen; the oldest go first. Copy and save give the whole text."""
LATENCIES = 4096
"""Tokens that p50 and p99 are over, the newest: four times the longest text that one run makes."""

GENERATE_WORDS = later("Press Start (F5): the text appears here, token by token.")
SAMPLE_WORDS = later("Press Start (F5): what the model has learned to write appears here, each time after some steps.")
TRAIN_WORDS = later("A training run makes no text. Set the workload to generate and press Start (F5): it appears here.")

LEAST_TEXT_PX = 48


class TextPanel(QWidget):
    """What generation is asked for, and what it says. Shows the run begun last."""

    settings_changed = Signal(dict)
    """The person changed prompt or sampling: what ``PromptBox.settings`` and ``SamplingControls.settings`` have."""

    save_wanted = Signal(str)
    """Prompt and text, to be saved"""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._dark = False
        self._generates = False
        self._prompt_length = 0
        self._text: list[str] = []
        self._breaker = LineBreaker()
        self._sections: TextSections | None = None
        """Where several prompts are continued."""
        self._tokens = 0
        self._recent: deque[tuple[float, float]] = deque()
        self._token_ms: deque[float] = deque(maxlen=LATENCIES)
        self._first_token_ms = float("nan")
        self._readouts_at_s = 0.0

        self.prompts = PromptBox()
        self.prompts.edited.connect(self._report)
        self.prompt_edit, self.history = self.prompts.edit, self.prompts.history
        self.sampling = SamplingControls()
        self.sampling.changed.connect(self._report)

        self.text_output = QPlainTextEdit()
        self.text_output.setObjectName("text_output")
        keep(self.text_output.setAccessibleName, "Generated text")
        keep(self.text_output.setToolTip, "The first text of the batch, or each prompt's, after its prompt in bold.")
        self.text_output.setReadOnly(True)
        self.text_output.setTabChangesFocus(True)
        self.text_output.setUndoRedoEnabled(False)
        self.text_output.setMaximumBlockCount(MOST_BLOCKS)
        self.text_output.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.text_output.setFont(monospace(self.font().pointSizeF()))
        self.copy_button = QPushButton()
        keep(self.copy_button.setText, "Copy")
        self.copy_button.setObjectName("copy_text_button")
        keep(self.copy_button.setToolTip, "Copy prompt and text")
        self.copy_button.setEnabled(False)
        self.copy_button.clicked.connect(self._copy)
        self.save_button = QPushButton()
        self.save_button.setObjectName("save_text_button")
        keep(self.save_button.setText, "Save…")
        keep(self.save_button.setToolTip, "Save prompt and text to a file")
        self.save_button.setEnabled(False)
        self.save_button.clicked.connect(lambda: self.save_wanted.emit(self._shown_text()))
        self.pair = TextPair()
        self.outputs = QStackedWidget()
        self.outputs.addWidget(self.text_output)
        self.outputs.addWidget(self.pair)
        # Else the pair, also while it is not shown, keeps the panel higher than the smallest windows.
        self.outputs.setMinimumHeight(LEAST_TEXT_PX)
        self.times = TokenTimesPlot()

        self.rate_readout = Readout(later("Median of the last second"), later("tokens/s"), widest="888.8k", scale=1.4)
        self.first_readout = Readout(later("Time to first token"), "", lead=later("first token"), widest="8,888 ms")
        self.p50_readout = Readout(later("Median time a token"), "", lead=later("token p50"), widest="888.8 ms")
        self.p99_readout = Readout(later("99th percentile of the time a token"), "", lead="p99", widest="888.8 ms")
        self._readouts = (self.rate_readout, self.first_readout, self.p50_readout, self.p99_readout)
        self._captions = (self.prompts.caption, Caption(later("Text")))
        self._lay_out()
        self.set_config(RunConfig(workload="generate"))
        self.apply_theme(self._dark)

    def set_config(self, config: RunConfig) -> None:
        """Show the settings of ``config`` without reporting them as changed."""
        self.prompts.set_config(config)
        self.sampling.set_config(config)
        words = SAMPLE_WORDS if config.sample_every else TRAIN_WORDS
        if config.workload == "generate":
            words = GENERATE_WORDS
        keep(self.text_output.setPlaceholderText, words)

    def begin_run(self, config: RunConfig, *, run_id: int = 0) -> None:
        """Clear figures, and the text where the run is to write some; show the prompt of a generation run.

        What is drawn has the colour of ``run_id``.
        """
        self.times.set_run(run_id)
        self._recent.clear()
        self._token_ms.clear()
        self._tokens = 0
        self._first_token_ms = float("nan")
        self._show_figures()
        self._generates = config.workload == "generate"
        if not (self._generates or config.sample_every):
            return
        self.outputs.setCurrentWidget(self.text_output)
        self.text_output.clear()
        self._text, self._breaker, self._prompt_length, self._sections = [], LineBreaker(), 0, None
        self.prompts.remember(config)
        if self._generates and len(config.prompts) > 1:
            document = self.text_output.document()
            self._sections = TextSections(document, config.prompts, self._prompt_format())
            self._offer_text()
        elif self._generates:
            self._prompt_length = len(config.prompt)
            self._append(config.prompt, self._prompt_format())

    def begin_pair(self, prompt: str, names: tuple[str, str]) -> TextPair:
        """Make room for what A and B write, side by side, and return where it is to be shown."""
        self.begin_run(RunConfig())  # its figures are of one run, and there are two
        self.history.add(prompt)
        self._sections = None
        self.pair.begin(prompt, names)
        self.outputs.setCurrentWidget(self.pair)
        self.copy_button.setEnabled(True)
        self.save_button.setEnabled(True)
        return self.pair

    def show_stored(self, config: RunConfig, text: str, *, run_id: int) -> None:
        """Show what a run of ``config`` has written some time; of several prompts ``text`` has all, told apart."""
        if len(config.prompts) > 1:
            config = dataclasses.replace(config, prompt="", more_prompts=())
        self.begin_run(config, run_id=run_id)
        self.append_text(text)
        self.end_run()

    def append_text(self, text: str, row: int = 0) -> None:
        """Add ``text`` at the end, of several prompts at that of prompt ``row``.

        A view that showed the end of all still does.
        """
        if self._sections is None:
            self._append(text, QTextCharFormat())
            return
        bar = self.text_output.verticalScrollBar()
        at_end = 0 < bar.value() == bar.maximum()
        self._sections.append(row, text)
        if at_end:
            bar.setValue(bar.maximum())

    def append_sample(self, step: int, text: str) -> None:
        """Add a text that a model in training wrote after ``step`` steps, prompt included, with a line over it."""
        self._append(tr("— after step {step} —", step=f"{step:,}") + "\n", self._prompt_format())
        self._append(f"{text}\n\n", QTextCharFormat())

    def add_samples(self, samples: Sequence[Sample]) -> None:
        """Take in what each token took; readouts change four times a second at most."""
        if not self._generates:
            return
        for sample in samples:
            if sample.phase == "prefill":
                self._first_token_ms = sample.step_ms
            elif sample.phase != "compile":
                self._token_ms.append(sample.step_ms)
                self._tokens += 1
                self._recent.append((sample.time_s, sample.tokens_per_s))
        while self._recent and self._recent[0][0] <= self._recent[-1][0] - READOUT_WINDOW_S:
            self._recent.popleft()
        now_s = time.monotonic()
        if now_s - self._readouts_at_s >= READOUT_S:
            self._readouts_at_s = now_s
            self._show_figures()

    def text(self) -> str:
        """Prompt and text of the last run, as the model wrote them."""
        if self._sections is not None:
            return self._sections.text()
        return "".join(self._text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        layout = self.layout()
        assert layout is not None
        # What the other parts leave to both, or to the text alone.
        room_px = self.height() - layout.minimumSize().height() + self.outputs.minimumHeight()
        self.times.setVisible(room_px >= (TEXT_TO_PLOT + 1) * LEAST_HEIGHT_PX + layout.spacing())

    def end_run(self) -> None:
        """Show the last figures."""
        self._show_figures()

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        look = theme(dark)
        for part in (*self._captions, *self._readouts):
            part.apply_theme(look)
        self.times.apply_theme(dark)
        self.pair.apply_theme(dark)
        if self._sections is not None:
            self._sections.dress(self._prompt_format())
            return
        cursor = QTextCursor(self.text_output.document())
        cursor.setPosition(min(self._prompt_length, self.text_output.document().characterCount() - 1))
        cursor.setPosition(0, QTextCursor.MoveMode.KeepAnchor)
        cursor.setCharFormat(self._prompt_format())

    def _prompt_format(self) -> QTextCharFormat:
        style = QTextCharFormat()
        style.setForeground(QColor(theme(self._dark).muted))
        style.setFontWeight(QFont.Weight.Bold)
        return style

    def _append(self, text: str, style: QTextCharFormat) -> None:
        bar = self.text_output.verticalScrollBar()
        at_end = bar.value() == bar.maximum()
        # A cursor of its own leaves the person's selection alone.
        cursor = QTextCursor(self.text_output.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(self._breaker.broken(text), style)
        if at_end:
            bar.setValue(bar.maximum())
        self._text.append(text)
        self._offer_text()

    def _offer_text(self) -> None:
        self.copy_button.setEnabled(True)
        self.save_button.setEnabled(True)

    def _show_figures(self) -> None:
        rates = [rate for _, rate in self._recent]
        self.rate_readout.show_number(si_number(float(np.median(rates))) if rates else NOTHING)
        self.first_readout.show_number(milliseconds(self._first_token_ms))
        p50_ms, p99_ms = np.quantile(self._token_ms, (0.5, 0.99)) if self._token_ms else (np.nan, np.nan)
        self.p50_readout.show_number(milliseconds(float(p50_ms)))
        self.p99_readout.show_number(milliseconds(float(p99_ms)))
        if self.times.isVisible():
            self.times.show_times(self._token_ms, first=self._tokens - len(self._token_ms) + 1)

    def _report(self) -> None:
        self.settings_changed.emit({**self.prompts.settings(), **self.sampling.settings()})

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._shown_text())

    def _shown_text(self) -> str:
        return self.pair.text() if self.outputs.currentWidget() is self.pair else self.text()

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 8, 8, 8)
        column.setSpacing(8)
        column.addWidget(self.prompts)
        column.addWidget(self.sampling)
        row = QHBoxLayout()
        row.addWidget(self._captions[1])
        row.addStretch(1)
        row.addWidget(self.copy_button)
        row.addWidget(self.save_button)
        column.addLayout(row)
        column.addWidget(self.outputs, TEXT_TO_PLOT)
        column.addWidget(self.times, 1)
        figures = QGridLayout()
        figures.setHorizontalSpacing(12)
        figures.setVerticalSpacing(2)
        left, right = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight
        for index, (readout, side) in enumerate(zip(self._readouts, (left, right, left, right), strict=True)):
            figures.addWidget(readout, index // 2, index % 2, side | Qt.AlignmentFlag.AlignVCenter)
        column.addLayout(figures)
