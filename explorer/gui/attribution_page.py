"""Attribution: effects with their intervals, a sentence a toggle, and the table of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPlainTextEdit

from explorer.config import RunConfig
from explorer.experiments.plans import Plan, attribution_plan
from explorer.experiments.suggestions import factorial
from explorer.gui.cells import mfu, millijoules, number, speedup
from explorer.gui.controls import divided
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import gib, milliseconds, si_number
from explorer.gui.result_table import ResultTable
from explorer.gui.row_plots import EFFECT_NAMES_PX, Bar, EffectsPlot
from explorer.gui.series_page import SeriesPage, said
from explorer.gui.wording import keep
from explorer.results.attribution_rows import effects_of
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
        table = ResultTable(
            name="attribution_table",
            title=later("Settings and effects"),
            words=0,
            whole=True,
            empty=later(
                "Press Measure: each setting becomes a row, and then what each toggle does and which act together."
            ),
        )
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
        self.asked = self._edit(
            "toggles", later("Two to five toggles as TOGGLE=LEVEL; empty: the first of those that are set")
        )
        self.effects.setMinimumWidth(EFFECT_NAMES_PX + LEAST_PX)
        above = divided(Qt.Orientation.Horizontal, (self.effects, 3), (self.words, 2))
        content = divided(Qt.Orientation.Vertical, (above, 3), (self.table, 2))
        self._lay_out([(later("Toggles"), self.asked), ("", self._adder(self.asked))], content)

    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        self.asked.setPlaceholderText(" ".join(one.name for one in factorial(config, device)))

    def plan(self, config: RunConfig, here: Environment) -> Plan:
        device = here.device(config.device)
        return attribution_plan(
            config, device, said(self.asked), parity=self.parity.isChecked(), proof=self.proof.isChecked()
        )

    def reword(self) -> None:
        effects = [row for row in self.rows if row["kind"] != "setting"]
        self.effects.show_bars([_bar(row) for row in effects if _drawn(row)])
        floor = max((number(row["floor"]) for row in effects), default=ASSUMED_FLOOR)
        known = effects_of(self._found, self._toggles) if effects else ()
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
        settings = [row for row in self.rows if row["kind"] == "setting"]
        self.table.show_rows(
            header, [_line(row) for row in settings], [from_below(str(row["problem"] or "")) for row in settings]
        )

    def apply_theme(self, dark: bool) -> None:
        self.effects.apply_theme(dark)


def _drawn(row: Mapping[str, Cell]) -> bool:
    """Whether an effect has a row of the plot: not beside each other one, which the sentences tell, and pairs only."""
    return row["kind"] != "beside another" and str(row["of"]).count(" x ") < 2


def _bar(row: Mapping[str, Cell]) -> Bar:
    low, high = number(row["ci_low"]), number(row["ci_high"])
    value = number(row["speedup"])
    return Bar(
        name=tr(NAMES[str(row["kind"])], of=from_below(str(row["of"]))),
        words=f"{value:.3f} ({low:.3f} – {high:.3f})",
        value=value,
        low=low,
        high=high,
        floor=number(row["floor"]),
        bad=row["verdict"] in ("slower", "less together"),
    )


def _line(row: Mapping[str, Cell]) -> list[str]:
    return [
        from_below(str(row["of"])),
        milliseconds(number(row["step_ms_median"])),
        si_number(number(row["tokens_per_s"])),
        speedup(row, ""),
        gib(number(row["peak_allocated_bytes"])),
        mfu(row),
        millijoules(row),
        from_below(str(row["parity"])),
        from_below(str(row["proof"])),
    ]
