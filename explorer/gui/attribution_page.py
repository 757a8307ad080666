"""Attribution: effects with their intervals, a sentence a toggle, and the table of all settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QSplitter

from explorer.config import RunConfig
from explorer.experiments.plans import Plan, Rows, attribution_plan
from explorer.experiments.suggestions import factorial
from explorer.gui.ladder_page import mfu, millijoules, speedup
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import gib, milliseconds, si_number
from explorer.gui.result_table import ResultTable
from explorer.gui.row_plots import EFFECT_NAMES_PX, Bar, EffectsPlot
from explorer.gui.series_page import SeriesPage, said
from explorer.gui.wording import keep
from explorer.results.attribution_rows import Tried, effects_of
from explorer.results.attribution_words import attribution_words
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.floor import ASSUMED_FLOOR

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "alone": later("{of} alone"),
        "beside all others": later("{of} beside all others"),
        "main effect": later("{of} on average"),
        "interaction": later("{of} together"),
    }
)


LEAST_PX = 72
"""Of the plot beside the names."""


class AttributionPage(SeriesPage):
    def __init__(self) -> None:
        table = ResultTable(name="attribution_table", title=later("Settings and effects"), words=0, whole=True)
        super().__init__("attribution", later("Attribution"), table, checks=True)
        self.effects = EffectsPlot(
            name="effects_plot",
            title=later("Effects"),
            words=later(
                "A point an effect, with its 95% interval: what each toggle gives alone and beside the others."
            ),
            unit=later("times as fast"),
            names_px=EFFECT_NAMES_PX,
        )
        self.words = QPlainTextEdit()
        self.words.setObjectName("attribution_words")
        self.words.setReadOnly(True)
        keep(self.words.setAccessibleName, "In words")
        keep(self.words.setPlaceholderText, "A sentence a toggle, once every setting is measured.")
        self._found: tuple[Sequence[Tried], tuple[str, ...]] = ((), ())
        self.asked = self._edit(
            "toggles", later("Two to five toggles as TOGGLE=LEVEL; empty: the first of those that are set")
        )
        self.effects.setMinimumWidth(EFFECT_NAMES_PX + LEAST_PX)
        above = QSplitter(Qt.Orientation.Horizontal)
        above.addWidget(self.effects)
        above.addWidget(self.words)
        above.setStretchFactor(0, 3)
        above.setStretchFactor(1, 2)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(above)
        splitter.addWidget(self.table)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        for one in (above, splitter):
            one.setChildrenCollapsible(False)
        self._lay_out([(later("Toggles"), self.asked), ("", self._adder(self.asked))], splitter)
        self.show_found(None, [], ())

    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        self.asked.setPlaceholderText(" ".join(one.name for one in factorial(config, device)))

    def plan(self, config: RunConfig, here: Environment) -> Plan:
        device = here.device(config.device)
        return attribution_plan(
            config, device, said(self.asked), parity=self.parity.isChecked(), proof=self.proof.isChecked()
        )

    def show_found(self, found: Any, rows: Rows, toggles: tuple[str, ...]) -> None:
        self._found, self.rows = (tuple(found or ()), toggles), rows
        effects = [row for row in rows if row["kind"] != "setting"]
        self.effects.show_bars([_bar(row) for row in effects if _drawn(row)])
        floor = max((_number(row["floor"]) for row in effects), default=ASSUMED_FLOOR)
        known = effects_of(self._found[0], toggles) if effects else ()
        self.words.setPlainText("\n\n".join(attribution_words(known, floor=floor, say=tr)))
        header = [
            tr("Setting"),
            tr("ms/step"),
            tr("tokens/s"),
            tr("of the baseline"),
            tr("Peak"),
            tr("MFU"),
            tr("mJ/token"),
            tr("Parity"),
            tr("Proof"),
        ]
        settings = [row for row in rows if row["kind"] == "setting"]
        self.table.show_rows(
            header, [_line(row) for row in settings], [from_below(str(row["problem"] or "")) for row in settings]
        )

    def apply_theme(self, dark: bool) -> None:
        self.effects.apply_theme(dark)

    def reword(self) -> None:
        self.show_found(self._found[0], self.rows, self._found[1])

    def _edits(self) -> tuple[QLineEdit, ...]:
        return (self.asked,)


def _drawn(row: Mapping[str, Cell]) -> bool:
    """Whether an effect has a row of the plot: not beside each other one, which the sentences tell, and pairs only."""
    return row["kind"] != "beside another" and str(row["of"]).count(" x ") < 2


def _bar(row: Mapping[str, Cell]) -> Bar:
    low, high = _number(row["ci_low"]), _number(row["ci_high"])
    value = _number(row["speedup"])
    return Bar(
        name=tr(NAMES[str(row["kind"])], of=from_below(str(row["of"]))),
        words=f"{value:.3f} ({low:.3f} – {high:.3f})",
        value=value,
        low=low,
        high=high,
        floor=_number(row["floor"]),
        bad=row["verdict"] in ("slower", "less together"),
    )


def _line(row: Mapping[str, Cell]) -> list[str]:
    return [
        from_below(str(row["of"])),
        milliseconds(_number(row["step_ms_median"])),
        si_number(_number(row["tokens_per_s"])),
        speedup(row, ""),
        gib(_number(row["peak_allocated_bytes"])),
        mfu(row),
        millijoules(row),
        from_below(str(row["parity"])),
        from_below(str(row["proof"])),
    ]


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, (int, float)) else math.nan
