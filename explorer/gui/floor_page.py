"""The A/A floor: the settings of the moment against themselves, a point a comparison, over the floor they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QLabel, QSpinBox, QWidget

from explorer.config import RunConfig
from explorer.experiments.plans import Plan, floor_plan
from explorer.gui.controls import divided, quiet_wheel
from explorer.gui.language import from_below, later, tr
from explorer.gui.result_table import ResultTable
from explorer.gui.row_plots import Bar, EffectsPlot
from explorer.gui.series_page import SeriesPage
from explorer.gui.wording import keep
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.floor import ASSUMED_FLOOR, Floor
from explorer.results.floor_words import floor_words

DELAY = 0.02
REPEATS = (1, 100)
DEFAULT_REPEATS = 20
NUMBERS_PX = 60


class FloorPage(SeriesPage):
    def __init__(self) -> None:
        table = ResultTable(
            name="floor_table",
            title=later("Comparisons of equal arms"),
            words=2,
            whole=True,
            empty=later("Press Measure: each comparison of two equal arms becomes a row."),
        )
        super().__init__("floor", later("A/A floor"), table, checks=False)
        self.plot = EffectsPlot(
            name="floor_plot",
            title=later("A/A floor"),
            words=later(
                "A point a comparison of the settings with themselves, with its 95% interval: how much may two equal "
                "arms seem to differ here? Every comparison of these settings is judged by it."
            ),
            unit=later("speed of the second arm over the first's"),
            names_px=NUMBERS_PX,
        )
        self.repeats = QSpinBox()
        self.repeats.setObjectName("floor_repeats")
        self.repeats.setRange(*REPEATS)
        self.repeats.setValue(DEFAULT_REPEATS)
        quiet_wheel(self.repeats)
        keep(self.repeats.setToolTip, "Comparisons in all, those of earlier times included")
        keep(self.repeats.setAccessibleName, "Comparisons in all, those of earlier times included")
        self.delay = QCheckBox()
        self.delay.setObjectName("floor_delay")
        keep(self.delay.setText, "second arm delayed by 2%")
        keep(self.delay.setToolTip, "Is an arm that is 2% slower called slower? Counted apart from the floor")
        self.words = QLabel()
        self.words.setObjectName("floor_words")
        self.words.setWordWrap(True)
        self.words.setProperty("role", "small")
        content = divided(Qt.Orientation.Vertical, (self.plot, 3), (self.words, 0), (table, 2))
        self._lay_out([(later("Comparisons"), self.repeats), ("", self.delay)], content)

    def values(self) -> dict[str, Any]:
        return {**super().values(), "repeats": self.repeats.value()}

    def take(self, values: Mapping[str, Any]) -> None:
        super().take(values)
        repeats = values.get("repeats")
        if isinstance(repeats, int):
            self.repeats.setValue(repeats)

    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        """There is nothing to suggest: it is of the settings of the moment."""

    def plan(self, config: RunConfig, here: Environment) -> Plan:
        return floor_plan(
            config, here, repeats=self.repeats.value(), delay=self._share(), anew=not self.go_on.isChecked()
        )

    def reword(self) -> None:
        floor: Floor | None = self._found or None
        rows = self.rows
        self.plot.show_bars([_bar(row) for row in rows])
        delay = float(rows[0]["delay"] or 0.0) if rows else 0.0
        self.words.setText("" if floor is None else "\n".join(floor_words(floor, delay, tr)))
        self.table.show_rows(
            [tr("Comparison"), tr("Ratio"), tr("Verdict"), tr("Pairs"), tr("Blocks dropped")],
            [_line(row) for row in rows],
            [str(row["at"]) for row in rows],
        )

    def apply_theme(self, dark: bool) -> None:
        self.plot.apply_theme(dark)

    def _inputs(self) -> tuple[QWidget, ...]:
        return (self.repeats, self.delay)

    def _share(self) -> float:
        return DELAY if self.delay.isChecked() else 0.0


def _bar(row: Mapping[str, Cell]) -> Bar:
    ratio, low, high = (float(row[name] or 0.0) for name in ("speedup", "ci_low", "ci_high"))
    return Bar(
        name=str(row["comparison"]),
        words=f"{ratio:.4f} ({low:.4f} – {high:.4f})",
        value=ratio,
        low=low,
        high=high,
        floor=float(row["floor"] or ASSUMED_FLOOR),
        bad=(row["verdict"] in ("faster", "slower")) != bool(row["delay"]),
    )


def _line(row: Mapping[str, Cell]) -> list[str]:
    return [
        str(row["comparison"]),
        f"{row['speedup']:.4f} ({row['ci_low']:.4f} – {row['ci_high']:.4f})",
        from_below(str(row["verdict"])),
        str(row["n_pairs"]),
        str(row["dropped_blocks"]),
    ]
