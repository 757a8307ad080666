"""Two or more runs of the table side by side: ratios, bars, speed against memory, and their curves in one plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QColor, QGuiApplication, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from explorer.experiments.compare import BLOCK_S
from explorer.experiments.floors import known_floor
from explorer.gui.controls import quiet_wheel
from explorer.gui.language import from_below, later, tr
from explorer.gui.overlay_plot import OVERS, WHATS, OverlayPlot, RunLine
from explorer.gui.overview_plots import BarsPlot, FrontPlot
from explorer.gui.palette import NOTHING, si_number, theme
from explorer.gui.readout import Key, Legend
from explorer.gui.result_table import ResultTable
from explorer.gui.wording import add_item, keep
from explorer.optimizations.registry import baseline_levels
from explorer.results.log import RunLog
from explorer.results.overview import Entry, entry, not_alike, ratio

MOST_ENTRIES = 12
"""More bars could not be told apart."""
REFRESH_MS = 500
TABLE_HEIGHT_PX = 140

Selected = Callable[[], Sequence[tuple[int, int]]]
"""Run id and segment of the rows selected in the table of runs, from top to bottom."""


class OverviewPanel(QWidget):
    """Draws the rows that are selected in the table of runs, or its newest where fewer than two are."""

    def __init__(
        self,
        log: RunLog,
        selected: Selected,
        colour: Callable[[int], QColor],
        dashes: Callable[[int], Qt.PenStyle],
        parent: QWidget | None = None,
    ) -> None:
        """``colour`` and ``dashes``: of a run, as the table of runs has them now."""
        super().__init__(parent)
        self.setObjectName("overview_panel")
        self._log = log
        self._selected = selected
        self._colour = colour
        self._dashes = dashes
        self._shown: tuple[Entry, ...] = ()
        self.bars, self.front, self.overlay = BarsPlot(), FrontPlot(), OverlayPlot()
        self.drawn = self._combo("overview_drawn", later("What is drawn of the runs"))
        add_item(self.drawn, later("Bars and memory"), None)
        for what, (words, _) in WHATS.items():
            add_item(self.drawn, words, what)
        self.over = self._combo("overview_over", later("What their curves are drawn over"))
        for over, (words, _) in OVERS.items():
            add_item(self.over, words, over)
        self._legend = Legend()
        self._dark = False
        for combo in (self.drawn, self.over):
            combo.currentIndexChanged.connect(self._draw)
        self.table = ResultTable(
            name="overview_table",
            title=later("Runs side by side"),
            words=1,
            empty=later("The runs that are selected in the table below, or all of them, stand here side by side."),
        )
        self.table.setFixedHeight(TABLE_HEIGHT_PX)
        self._note = QLabel()
        self._note.setObjectName("overview_note")
        self._note.setProperty("role", "small")
        self._note.setWordWrap(True)
        self._note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._copy = QPushButton()
        keep(self._copy.setText, "Copy as Markdown")
        self._copy.setObjectName("copy_overview_button")
        self._copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.markdown()))
        self._again = QTimer(self)
        self._again.setInterval(REFRESH_MS)
        self._again.timeout.connect(self.refresh)
        head = QHBoxLayout()
        head.setSpacing(8)
        for combo in (self.drawn, self.over):
            head.addWidget(combo)
        head.addWidget(self._legend, 1)
        beside = QWidget()
        plots = QHBoxLayout(beside)
        plots.setContentsMargins(0, 0, 0, 0)
        plots.setSpacing(8)
        plots.addWidget(self.bars, 1)
        plots.addWidget(self.front, 1)
        self._stack = QStackedWidget()
        self._stack.addWidget(beside)
        self._stack.addWidget(self.overlay)
        foot = QHBoxLayout()
        foot.addWidget(self._note, 1)
        foot.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 4, 8, 4)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(self._stack, 1)
        column.addWidget(self.table)
        column.addLayout(foot)
        self.apply_theme(False)

    def refresh(self) -> None:
        """Draw anew what has changed since the last time."""
        rows = list(self._selected())
        if len(rows) < 2:
            rows = [(run.run_id, part.segment.index) for run in self._log.runs for part in run.segments]
        entries = tuple(entry(self._log, *row, toggles=baseline_levels()) for row in rows[-MOST_ENTRIES:])
        if repr(entries) != repr(self._shown):  # by text, since NaN equals nothing
            self._shown = entries
            self._draw()

    def markdown(self) -> str:
        """The table as Markdown."""
        header, *rows = self._cells()
        lines = [header, ["---:"] + ["---"] + ["---:"] * (len(header) - 2), *rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"

    def apply_theme(self, dark: bool) -> None:
        """Put on the light or the dark look."""
        self._dark = dark
        self.overlay.apply_theme(dark)
        self.bars.apply_theme(dark)
        self.front.apply_theme(dark)
        self._draw()

    def reword(self) -> None:
        """Show table and note in the language of the moment."""
        self._draw()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
        self._again.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._again.stop()

    def _combo(self, name: str, words: str) -> QComboBox:
        combo = QComboBox()
        combo.setObjectName(name)
        keep(combo.setAccessibleName, words)
        keep(combo.setToolTip, words)
        quiet_wheel(combo)
        return combo

    def _draw_curves(self) -> None:
        """The runs that the rows are of, each once, where their curves are wanted."""
        what = self.drawn.currentData()
        self._stack.setCurrentIndex(0 if what is None else 1)
        self.over.setEnabled(what is not None)
        ids = list(dict.fromkeys(one.run_id for one in self._shown)) if what is not None else []
        runs = [RunLine(record=self._log.run(i), colour=self._colour(i), style=self._dashes(i)) for i in ids]
        if what is not None:
            self.overlay.show_runs(runs, what, self.over.currentData())
        keys = [
            Key(words=tr("run {run}", run=run.record.run_id), colour=run.colour, width=2.0, style=run.style)
            for run in runs
        ]
        self._legend.show_keys(tuple(keys), theme(self._dark))

    def _draw(self, *_: object) -> None:
        colours = {(e.run_id, e.segment): self._colour(e.run_id) for e in self._shown}
        floor = self._first_floor()
        self.bars.show_entries(self._shown, colours, floor=None if floor is None else floor[0])
        self.front.show_entries(self._shown, colours)
        self._draw_curves()
        header, *rows = self._cells()
        self.table.show_rows(header, rows, [f"{one.name} {from_below(one.label)}" for one in self._shown])
        self._note.setText(self._note_words())

    def _first_floor(self) -> tuple[float, bool] | None:
        """What equal runs of the first row's kind may seem to differ by, and whether it was measured; None where no
        comparison could be made."""
        if not self._shown or not_alike(self._shown) or self._shown[0].workload != "train":
            return None
        run = self._log.run(self._shown[0].run_id)
        here = run.environment
        config = run.segment(self._shown[0].segment).config
        try:
            return None if here is None else known_floor((config,), here, block_s=BLOCK_S)
        except ValueError:
            return None  # a device that was asked for and is not there

    def _cells(self) -> list[list[str]]:
        """Header and rows as they stand on the screen."""
        lines = [
            [
                tr("Run"),
                tr("What differs"),
                tr("tokens/s"),
                tr("of the first"),
                tr("GiB in a step"),
                tr("of the first"),
                tr("Loss"),
            ]
        ]
        for one in self._shown:
            first = self._shown[0]
            lines.append(
                [
                    one.name,
                    from_below(one.label),
                    ("" if one.settled else "~ ") + si_number(one.tokens_per_s),
                    _times(ratio(one.tokens_per_s, first.tokens_per_s)),
                    _number(one.memory_gib, 2),
                    _times(ratio(one.memory_gib, first.memory_gib)),
                    _number(one.loss, 3),
                ]
            )
        return lines

    def _note_words(self) -> str:
        if not self._shown:
            return tr("Select two rows or more in the table of runs (Ctrl+click); without, the newest are shown here.")
        words = tr(
            "Whiskers: nine steps in ten. Runs one after another can drift apart by themselves: Compare (F6) gives a "
            "verdict."
        )
        floor = self._first_floor()
        if floor is not None:
            share = tr("A/A floor ±{share}", share=f"{floor[0]:.2%}")
            words += " " + tr(
                "{floor}: less than that shows no difference.",
                floor=share if floor[1] else tr("{floor}, assumed", floor=share),
            )
        differ = not_alike(self._shown)
        if differ:
            what = tr(" and ").join(from_below(name) for name in differ)
            words = tr("These runs are not of one {what}: their figures cannot be held against each other.", what=what)
        if self._note.property("severity") != ("warning" if differ else ""):
            self._note.setProperty("severity", "warning" if differ else "")
            self._note.style().unpolish(self._note)
            self._note.style().polish(self._note)
        return words


def _times(value: float) -> str:
    return f"{value:.2f}x" if math.isfinite(value) else NOTHING


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else NOTHING
