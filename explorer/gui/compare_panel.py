"""The comparison of A and B: its figures, its two plots, and the verdict in words."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, SignalInstance
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from explorer.gui.comparison_plots import BlocksPlot, IntervalPlot
from explorer.gui.controls import ElidedLabel, quiet_wheel
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import A_STYLE, B_STYLE, NOTHING, a_colour, b_colour, theme
from explorer.gui.pin_bar import SWATCH_PX, swatch
from explorer.gui.pins import LETTERS
from explorer.gui.readout import Readout, Readouts
from explorer.gui.verdict_words import checks_words, details, headline
from explorer.gui.wording import keep
from explorer.results.blocks import Block, Blocks, ComparisonResult
from explorer.results.checks import Checks, in_words
from explorer.results.comparison import NARROW, RatioInterval
from explorer.results.comparison_record import ComparisonRecord

BUDGET_S = (5, 3600)
DEFAULT_BUDGET_S = 60
DETAILS_HEIGHT_PX = 28
WRONG = ("outside tolerance", "not proven", "failed")


class ComparePanel(QWidget):
    """Draws one comparison. It is told everything: ``begin``, ``add_block``, ``show_pair``, ``show_result``."""

    copy_wanted = Signal()
    export_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("compare_panel")
        self._dark = False
        self._floor = 0.0
        self._floor_words = ""
        self._blocks: tuple[list[tuple[int, Block]], list[tuple[int, Block]]] = ([], [])
        self._intervals: list[RatioInterval] = []

        self.ratio_readout = Readout(
            later("A's step time over B's: above 1, B is faster"), later("speed of B / A"), widest="88.888x", scale=2.0
        )
        self.interval_readout = Readout(
            later("95% interval of the ratio, bootstrapped by pairs of blocks"), "", widest="88.888 – 88.888"
        )
        self.pairs_readout = Readout(later("Pairs of blocks that count"), later("pairs"), widest="8,888")
        self.left_readout = Readout(later("Time left until the budget is spent"), later("left"), widest="8,888 s")
        self._readouts = (self.ratio_readout, self.interval_readout, self.pairs_readout, self.left_readout)
        self._arms = (_NameLine(), _NameLine())
        for line, letter in zip(self._arms, LETTERS, strict=True):
            line.text.setObjectName(f"compare_{letter.lower()}_label")
        self.blocks_plot = BlocksPlot()
        self.interval_plot = IntervalPlot()
        self.verdict, self.details, self.checked = QLabel(), QLabel(), QLabel()
        for label, name, role in (
            (self.verdict, "verdict_label", "verdict"),
            (self.details, "details_label", "small"),
            (self.checked, "checks_label", "small"),
        ):
            label.setObjectName(name)
            label.setProperty("role", role)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for label in (self.details, self.checked):  # two lines each, of which a narrow window needs both
            label.setWordWrap(True)
            label.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
            label.setFixedHeight(DETAILS_HEIGHT_PX)
        self.budget = QSpinBox()
        self.budget.setObjectName("budget_spin")
        self.budget.setRange(*BUDGET_S)
        self.budget.setValue(DEFAULT_BUDGET_S)
        self.budget.setSuffix(" s")
        keep(self.budget.setAccessibleName, "Longest time to measure")
        keep(
            self.budget.setToolTip,
            "Measure at most this long after the first block; a narrow interval ends it sooner",
        )
        quiet_wheel(self.budget)
        self.keep_dropout = QCheckBox()
        keep(self.keep_dropout.setText, "keep dropout")
        self.keep_dropout.setObjectName("keep_dropout_check")
        keep(
            self.keep_dropout.setToolTip,
            "Leave dropout as set. Otherwise it is off in both arms: its draws differ between kernels",
        )
        self.checks = QCheckBox()
        keep(self.checks.setText, "check numbers and proof")
        self.checks.setObjectName("checks_check")
        self.checks.setChecked(True)
        keep(
            self.checks.setToolTip,
            "Afterwards: are the numbers as float32's (parity), and did every toggle run (a profile of one step)?",
        )
        self.copy = self._button("copy_verdict_button", later("Copy"), later("Copy the verdict"), self.copy_wanted)
        self.export = self._button(
            "export_comparison_button",
            later("Export…"),
            later("Write the comparison as CSV or Markdown"),
            self.export_wanted,
        )
        self._lay_out()
        self.clear()
        self.apply_theme(False)

    def clear(self) -> None:
        """Show no comparison, and how to begin one."""
        self._empty()
        for line in self._arms:
            line.show_text("")
        self._say(
            "", tr("Pin the settings as A (Ctrl+Shift+A), change a toggle, press Compare (F6): the verdict comes here.")
        )

    def begin(self, comparison: ComparisonRecord) -> None:
        """Make room for ``comparison``."""
        self._empty()
        self.show_floor(comparison)
        self.show_names(comparison)

    def show_names(self, comparison: ComparisonRecord) -> None:
        """Say what the arms of ``comparison`` are."""
        for line, letter, name in zip(self._arms, LETTERS, comparison.names, strict=True):
            line.show_text(f"{letter}  {from_below(name).replace(' -> ', ' → ')}")

    def show_floor(self, comparison: ComparisonRecord) -> None:
        """Draw the floor of ``comparison`` from now on."""
        self._floor = comparison.floor
        words = tr("A/A floor ±{share}", share=f"{self._floor:.2%}")
        self._floor_words = words if comparison.floor_measured else tr("{floor}, assumed", floor=words)
        if self._intervals:
            self._draw_intervals()

    def show_activity(self, words: str) -> None:
        """Say what is being done while there is no verdict."""
        self._say("", words)

    def show_time_left(self, left_s: float | None) -> None:
        """Show how much of the budget is left; None: nothing is being measured."""
        self.left_readout.show_number(NOTHING if left_s is None else f"{max(left_s, 0):.0f} s")

    def add_block(self, arm: int, pair: int, block: Block) -> None:
        """Draw a block that has just ended."""
        self._blocks[arm].append((pair, block))
        self.blocks_plot.show_blocks(self._blocks)

    def show_pair(self, blocks: Blocks) -> None:
        """Draw what the whole pairs so far come to."""
        interval = blocks.interval()
        if interval is None:
            return
        self._intervals.append(interval)
        self._draw_intervals()
        dropped = blocks.dropped
        self.blocks_plot.show_dropped(
            [(pair, block.step_ms) for arm in self._blocks for pair, block in arm if pair in dropped]
        )
        self._show_interval(interval)

    def show_result(self, result: ComparisonResult, *, peak_bytes: tuple[int, int]) -> None:
        """Show the verdict, and the memory that each arm needed in a step; -1: not measured."""
        self._show_interval(result.interval)
        self._say(headline(result), details(result, peak_bytes=peak_bytes))
        self._offer(True)

    def show_checking(self, words: str) -> None:
        """Say how far the checks are."""
        self.checked.setText(words)

    def show_checks(self, checks: tuple[Checks, Checks], names: tuple[str, str]) -> None:
        """Show whether the arms' numbers are right and their toggles ran."""
        self.checked.setText(checks_words(checks))
        wrong = any(c.parity_verdict in WRONG or c.proof_verdict in WRONG for c in checks)
        self.checked.setProperty("severity", "problem" if wrong else "")
        self.checked.style().unpolish(self.checked)
        self.checked.style().polish(self.checked)
        told = [
            from_below(line) for of_arm, name in zip(checks, names, strict=True) for line in in_words(of_arm, name=name)
        ]
        self.checked.setToolTip("\n".join(told))
        self.checked.setAccessibleDescription("\n".join(told))

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        for readout in self._readouts:
            readout.apply_theme(theme(dark))
        self.blocks_plot.apply_theme(dark)
        self.interval_plot.apply_theme(dark)
        for line, colour, style in zip(self._arms, (a_colour(dark), b_colour(dark)), (A_STYLE, B_STYLE), strict=True):
            line.show_icon(swatch(colour, style))

    def _draw_intervals(self) -> None:
        self.interval_plot.show_intervals(self._intervals, floor=self._floor, floor_words=self._floor_words)

    def _empty(self) -> None:
        self._blocks = ([], [])
        self._intervals = []
        self.blocks_plot.show_blocks(self._blocks)
        self.blocks_plot.show_dropped(())
        self.interval_plot.show_intervals((), floor=self._floor, floor_words="")
        for readout in self._readouts:
            readout.show_number(NOTHING)
        self.checked.setText("")
        self.checked.setToolTip("")
        self._offer(False)

    def _say(self, headline: str, details: str) -> None:
        for label, words in ((self.verdict, headline), (self.details, details)):
            label.setText(words)
            label.setToolTip(words)

    def _offer(self, there_is_a_result: bool) -> None:
        self.copy.setEnabled(there_is_a_result)
        self.export.setEnabled(there_is_a_result)

    def _show_interval(self, interval: RatioInterval) -> None:
        self.ratio_readout.show_number(f"{interval.ratio:.3f}x")
        self.interval_readout.show_number(
            f"{interval.low:.3f} – {interval.high:.3f}",
            later("±{reach}, wanted ±{narrow}"),
            reach=f"{interval.reach:.1%}",
            narrow=f"{NARROW:.0%}",
        )
        self.pairs_readout.show_number(f"{interval.n_pairs:,}")

    def _button(self, name: str, text: str, tip: str, signal: SignalInstance) -> QPushButton:
        button = QPushButton()
        button.setObjectName(name)
        keep(button.setText, text)
        keep(button.setToolTip, tip)
        keep(button.setAccessibleName, tip)
        button.clicked.connect(signal)
        return button

    def _lay_out(self) -> None:
        plots = QHBoxLayout()
        plots.setSpacing(8)
        plots.addWidget(self.blocks_plot, 1)
        plots.addWidget(self.interval_plot, 1)
        options = QHBoxLayout()
        options.setSpacing(8)
        label = QLabel()
        keep(label.setText, "Budget")
        label.setBuddy(self.budget)
        options.addWidget(label)
        options.addWidget(self.budget)
        options.addStretch(1)
        options.addWidget(self.copy)
        options.addWidget(self.export)
        ticks = QHBoxLayout()
        ticks.setSpacing(8)
        ticks.addWidget(self.keep_dropout)
        ticks.addWidget(self.checks)
        ticks.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 4, 8, 4)
        column.setSpacing(4)
        column.addWidget(Readouts(self._readouts))
        for line in self._arms:
            column.addWidget(line)
        column.addLayout(plots, 1)
        column.addWidget(self.verdict)
        column.addWidget(self.details)
        column.addWidget(self.checked)
        column.addLayout(ticks)
        column.addLayout(options)


class _NameLine(QWidget):
    """What an arm is called, beside a piece of its line."""

    def __init__(self) -> None:
        super().__init__()
        self._icon = QLabel()
        self._icon.setFixedSize(SWATCH_PX)
        self.text = ElidedLabel()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self._icon)
        row.addWidget(self.text, 1)

    def show_text(self, text: str) -> None:
        self._icon.setVisible(bool(text))
        self.text.setText(text)
        self.text.setToolTip(text)

    def show_icon(self, icon: QIcon) -> None:
        self._icon.setPixmap(icon.pixmap(SWATCH_PX))
