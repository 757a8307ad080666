"""The ladder: a waterfall of speed, memory and parity, a row a rung, over the table of all figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from explorer.config import RunConfig
from explorer.experiments.plans import Plan, Rows, ladder_plan
from explorer.experiments.suggestions import rungs
from explorer.gui.cells import mfu, millijoules, number, speedup
from explorer.gui.controls import ElidedLabel, divided
from explorer.gui.language import from_below, later, tr
from explorer.gui.palette import gib, milliseconds, si_number
from explorer.gui.result_table import ResultTable
from explorer.gui.row_plots import MORE_WORDS_SHARE, NAMES_PX, Bar, RowPlot, times
from explorer.gui.series_page import SeriesPage, said
from explorer.gui.wording import keep
from explorer.results.checks import Checks, in_words
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell

GIB = 2**30
ROOMY_PX = 600
"""As much width has room for three plots."""


class LadderPage(SeriesPage):
    def __init__(self) -> None:
        table = ResultTable(
            name="ladder_table",
            title=later("The ladder's rungs"),
            words=0,
            whole=True,
            empty=later("Press Measure: each rung becomes a row, with what it adds to the one before."),
        )
        super().__init__("ladder", later("Ladder"), table, checks=True)
        self.speed = RowPlot(
            name="ladder_speed_plot",
            title=later("Speed of the rungs"),
            words=later("A bar a rung: what it adds to the speed of those below it. The first is the baseline, bare."),
            unit=later("times the baseline's speed"),
            names_px=NAMES_PX,
            words_share=MORE_WORDS_SHARE,
        )
        self.memory = RowPlot(
            name="ladder_memory_plot",
            title=later("Memory of the rungs"),
            words=later("What a step of each rung needs."),
            unit=later("GiB in a step"),
            words_share=MORE_WORDS_SHARE,
        )
        self.errors = RowPlot(
            name="ladder_parity_plot",
            title=later("Parity of the rungs"),
            words=later("How far each rung's numbers are from float32's."),
            unit=later("error / allowed"),
            limit=1.0,
        )
        self._plots = (self.speed, self.memory, self.errors)
        self.asked = self._edit(
            "rungs", later("The rungs, the lowest first, as TOGGLE=LEVEL; empty: the toggles that are set")
        )
        first = ElidedLabel()
        first.setObjectName("ladder_advice")
        first.setProperty("role", "muted")
        keep(first.setText, "Profile first (F8): where does a step's time go? Then change one thing at a time.")
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(first)
        column.addWidget(divided(Qt.Orientation.Vertical, (_Waterfall(self._plots), 4), (self.table, 3)), 1)
        self._lay_out([(later("Rungs"), self.asked), ("", self._adder(self.asked))], content)

    def suggest(self, config: RunConfig, device: DeviceInfo) -> None:
        self.asked.setPlaceholderText(" ".join(one.name for one in rungs(config, device)))

    def plan(self, config: RunConfig, here: Environment) -> Plan:
        device = here.device(config.device)
        return ladder_plan(
            config, device, said(self.asked), parity=self.parity.isChecked(), proof=self.proof.isChecked()
        )

    def reword(self) -> None:
        rows = self.rows
        checks = [rung.checks for rung in self._found]
        self.speed.show_bars(speed_bars(rows))
        self.memory.show_bars([_memory_bar(row) for row in rows])
        self.errors.show_bars([_parity_bar(row, of) for row, of in zip(rows, checks, strict=True)])
        self.table.show_rows(_header(), [_line(row) for row in rows], list(map(_tip, rows, checks)))

    def apply_theme(self, dark: bool) -> None:
        for plot in self._plots:
            plot.apply_theme(dark)


class _Waterfall(QWidget):
    """The plots side by side; where that is too narrow the first alone, since the table has all figures."""

    def __init__(self, plots: Sequence[RowPlot]) -> None:
        super().__init__()
        self._others = plots[1:]
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        for plot, share in zip(plots, (4, 2, 2), strict=True):
            row.addWidget(plot, share)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for plot in self._others:
            plot.setVisible(event.size().width() >= ROOMY_PX)


def speed_bars(rows: Rows) -> list[Bar]:
    """A row a rung, as multiples of the baseline's speed."""
    bars = []
    below = math.nan
    for row in rows:
        if row["rung"] == 0:
            value = 1.0 if row["step_ms_median"] is not None else math.nan
            bars.append(Bar(name=tr("baseline"), words=times(value), value=value))
        else:
            value = number(row["speedup_vs_baseline"])
            words = times(value)
            if row["problem"]:
                words = tr("failed")
            elif row["speedup"] is not None and row["rung"] != 1:
                words = tr("{whole} (× {own})", whole=words, own=f"{number(row['speedup']):.2f}")
            bars.append(
                Bar(
                    name=f"+ {row['setting']}",
                    words=words,
                    value=value,
                    low=number(row["ci_low_vs_baseline"]),
                    high=number(row["ci_high_vs_baseline"]),
                    below=below,
                    floor=number(row["floor"]),
                    bad=bool(row["problem"]) or value < below,
                )
            )
        below = value if math.isfinite(value) else below
    return bars


def _memory_bar(row: Mapping[str, Cell]) -> Bar:
    peak = number(row["peak_allocated_bytes"])
    return Bar(name=str(row["setting"]), words="" if math.isnan(peak) else gib(peak), value=peak / GIB)


def _parity_bar(row: Mapping[str, Cell], checks: Checks) -> Bar:
    name, verdict = str(row["setting"]), checks.parity_verdict
    if checks.parity is None:
        words = "" if verdict == "not checked" else from_below(verdict)
        return Bar(name=name, words=words, bad=verdict == "failed")
    shares = [measure.share for measure in checks.parity.measures]
    worst = max(shares) if checks.parity.ok else max(*shares, 1.0)
    broke = not checks.parity.ok and worst <= 1.0
    words = from_below(verdict) if broke or not math.isfinite(worst) else f"{worst:.2f}"
    return Bar(name=name, words=words, value=math.inf if broke else worst, bad=not checks.parity.ok)


def _header() -> list[str]:
    return [
        tr("Setting"),
        tr("ms/step"),
        tr("tokens/s"),
        tr("of the one before"),
        tr("of the baseline"),
        tr("Peak"),
        tr("MFU"),
        tr("mJ/token"),
        tr("Parity"),
        tr("Proof"),
    ]


def _line(row: Mapping[str, Cell]) -> list[str]:
    return [
        f"+ {row['setting']}" if row["rung"] else tr("baseline"),
        milliseconds(number(row["step_ms_median"])),
        si_number(number(row["tokens_per_s"])),
        speedup(row, ""),
        speedup(row, "_vs_baseline"),
        gib(number(row["peak_allocated_bytes"])),
        mfu(row),
        millijoules(row),
        from_below(str(row["parity"])),
        from_below(str(row["proof"])),
    ]


def _tip(row: Mapping[str, Cell], checks: Checks) -> str:
    if row["problem"]:
        return from_below(str(row["problem"]))
    return "\n".join(from_below(line) for line in in_words(checks, name=str(row["setting"])))
