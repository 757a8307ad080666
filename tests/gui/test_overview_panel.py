"""Selected runs side by side, on the real window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyqtgraph as pg
import pytest
from made_samples import GIB, begun, steps
from PySide6.QtCore import QItemSelectionModel, QRectF
from PySide6.QtGui import QAction, QColor
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QTableView, QTableWidget
from pytestqt.qtbot import QtBot
from window_bench import GPU, Bench, environment

from explorer.config import RunConfig
from explorer.experiments.floors import floor_key, write_floor
from explorer.gui.overview_plots import NAMES_PX, BarsPlot
from explorer.results.comparison import RatioInterval
from explorer.results.floor import AgainstItself, Floor
from explorer.results.overview import Entry

RATES = {1: 40_960.0, 2: 81_920.0, 3: 61_440.0}
PEAKS_GIB = {1: 24, 2: 12, 3: 16}


@pytest.fixture
def shown(bench: Bench) -> Bench:
    """Three finished runs in the log, and the overview in front."""
    bench.here = environment(GPU)
    window = bench.open()
    config = RunConfig(device="cuda:0")
    for run_id, level in ((1, None), (2, "sdpa"), (3, "math")):
        begun(window.log, config.with_level("attention", level), run_id)
        ms = 8192 / RATES[run_id] * 1e3
        window.log.append(run_id, steps([900.0, *[ms] * 40], tokens=8192, peak_bytes=PEAKS_GIB[run_id] * GIB))
        window.log.end(run_id, "completed")
    window.panels.runs.refresh()
    bench.until(lambda: bench.find(QTableView, "runs_table").model().rowCount() == 3)
    bench.find(QAction, "view_3_action").trigger()
    bench.until(lambda: window.panels.overview.isVisible())
    return bench


def rows(bench: Bench) -> list[list[str]]:
    table = bench.find(QTableWidget, "overview_table")
    return [[table.item(r, c).text() for c in range(table.columnCount())] for r in range(table.rowCount())]


def test_that_runs_stand_side_by_side_with_their_ratios_to_the_first(shown: Bench) -> None:
    assert rows(shown) == [
        ["1.1", "fp32 baseline", "41.0k", "1.00x", "24.00", "1.00x", "4.600"],
        ["2.1", "+ attention sdpa", "81.9k", "2.00x", "12.00", "0.50x", "4.600"],
        ["3.1", "+ attention math", "61.4k", "1.50x", "16.00", "0.67x", "4.600"],
    ]
    shown.find(QPushButton, "copy_overview_button").click()
    copied = QApplication.clipboard().text().splitlines()
    assert copied[3] == "| 2.1 | + attention sdpa | 81.9k | 2.00x | 12.00 | 0.50x | 4.600 |"


def test_that_bars_and_front_are_drawn_in_the_runs_colours(shown: Bench) -> None:
    (bars,) = (i for i in shown.find(pg.GraphicsView, "bars_plot").items() if isinstance(i, pg.BarGraphItem))
    assert list(bars.opts["width"]) == pytest.approx(list(RATES.values()))
    table = shown.window.panels.runs
    assert [QColor(c) for c in bars.opts["brushes"]] == [table.colour(run_id) for run_id in RATES]
    plot = shown.find(pg.GraphicsView, "front_plot")
    (points,) = (i for i in plot.items() if isinstance(i, pg.ScatterPlotItem) and len(i.data))
    drawn = np.array(sorted(zip(points.data["x"], points.data["y"], strict=True)))
    assert drawn == pytest.approx(np.array(sorted((PEAKS_GIB[i], RATES[i]) for i in RATES)))
    (front,) = plot.getPlotItem().listDataItems()[:1]
    assert np.column_stack(front.getData()) == pytest.approx(np.array([[12, RATES[2]]])), "nothing beats run 2"


def test_that_the_floor_of_the_first_run_is_drawn_around_it_and_said(
    shown: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = shown.find(QLabel, "overview_note")
    assert note.text().endswith("A/A floor ±0.50%, assumed: less than that shows no difference.")
    (band,) = (i for i in shown.find(pg.GraphicsView, "bars_plot").items() if isinstance(i, pg.LinearRegionItem))
    assert band.getRegion() == pytest.approx((RATES[1] / 1.005, RATES[1] * 1.005))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = shown.window.log.run(1).segment(0).config
    interval = RatioInterval(ratio=1.01, low=1.0, high=1.02, n_pairs=8)
    five = Floor(comparisons=(AgainstItself(interval=interval, dropped_blocks=0, at=""),) * 5)
    here = shown.window.log.run(1).environment
    assert here is not None
    write_floor(floor_key(config, here, block_s=2.0), five)
    shown.window.panels.overview.reword()
    assert band.getRegion() == pytest.approx((RATES[1] / (1 + five.measured), RATES[1] * (1 + five.measured)))
    assert f"A/A floor ±{five.measured:.2%}: less" in note.text()


def test_that_a_selection_is_shown_alone(shown: Bench) -> None:
    view = shown.find(QTableView, "runs_table")
    flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    for row in (1, 2):
        view.selectionModel().select(view.model().index(row, 0), flags)
    shown.until(lambda: len(rows(shown)) == 2)
    assert [(row[0], row[3]) for row in rows(shown)] == [("2.1", "1.00x"), ("3.1", "0.75x")]
    assert "Compare (F6) gives a verdict" in shown.find(QLabel, "overview_note").text()


def test_that_runs_of_two_workloads_are_not_held_against_each_other(shown: Bench) -> None:
    log = shown.window.log
    begun(log, RunConfig(device="cuda:0", workload="generate"), 4)
    log.append(4, steps([30.0, *[5.0] * 30], first="prefill", tokens=1, trains=False))
    note = shown.find(QLabel, "overview_note")
    shown.until(lambda: len(rows(shown)) == 4)
    assert note.text().startswith("These runs are not of one workload")
    assert note.property("severity") == "warning"


def test_that_an_empty_overview_says_what_to_do(bench: Bench) -> None:
    bench.open()
    bench.find(QAction, "view_3_action").trigger()
    assert "Select two rows" in bench.find(QLabel, "overview_note").text()
    assert rows(bench) == []


def test_that_whole_runs_are_laid_over_each_other_by_tokens_steps_or_time(shown: Bench) -> None:
    panel = shown.window.panels.overview
    assert not panel.overlay.isVisible()
    shown.choose("overview_drawn", "rate")
    assert panel.overlay.isVisible()
    table = shown.find(QTableView, "runs_table")
    table.selectRow(0)
    table.selectionModel().select(
        table.model().index(2, 0), QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    )
    panel.refresh()
    first_s, third_s = (np.cumsum([0.9, *[8192 / RATES[run]] * 40]) for run in (1, 3))
    for over, ends in (
        ("tokens", (41 * 8192, 41 * 8192)),
        ("step", (40, 40)),
        ("time_s", (first_s[-1], third_s[-1])),
    ):
        shown.choose("overview_over", over)
        assert len(panel.overlay.lines) == 2, "the selected ones"
        for line, end, rate, run_id in zip(panel.overlay.lines, ends, (RATES[1], RATES[3]), (1, 3), strict=True):
            x, y = line.getData()
            assert (x[-1], y[-1]) == (pytest.approx(end), pytest.approx(rate))
            assert y[0] == pytest.approx(8192 / 0.9)
            assert line.opts["pen"].color() == shown.window.panels.runs.colour(run_id)
    shown.choose("overview_drawn", "memory_gib")
    assert [line.getData()[1][-1] for line in panel.overlay.lines] == pytest.approx([24.0, 16.0])
    shown.choose("overview_drawn", None)
    assert not panel.overlay.isVisible()


def test_that_every_bar_keeps_its_name_however_long_its_number_and_label_are(qtbot: QtBot) -> None:
    plot = BarsPlot()
    qtbot.addWidget(plot)
    entry = Entry(
        run_id=188,
        segment=88,
        label="+ dropout off + attention sdpa, batch 1, seq 32",
        workload="train",
        machine=None,
        tokens_per_s=1.0,
        tokens_per_s_p5=1.0,
        tokens_per_s_p95=1.0,
        settled=True,
        memory_gib=1.0,
        loss=1.0,
    )
    plot.show_entries([entry], {(188, 88): QColor("red")}, floor=None)
    ((_, name),) = plot.getPlotItem().getAxis("left")._tickLevels[0]
    assert name.startswith("188.89  …")
    assert name.endswith("seq 32")
    assert plot.fontMetrics().horizontalAdvance(name) <= NAMES_PX - 20, "the axis leaves out what is wider"


def test_that_names_of_points_that_touch_share_a_line_and_no_name_covers_another(shown: Bench) -> None:
    plot = shown.window.panels.overview.front
    shown.window.resize(1440, 900)

    def drawn(*at: tuple[str, float, float]) -> list[tuple[str, QRectF]]:
        entries = [
            Entry(
                run_id=int(name[0]),
                segment=0,
                label=name,
                workload="train",
                machine=None,
                tokens_per_s=rate,
                tokens_per_s_p5=rate,
                tokens_per_s_p95=rate,
                memory_gib=gib,
                loss=1.0,
                settled=True,
            )
            for name, gib, rate in at
        ]
        plot.show_entries(entries, {(entry.run_id, 0): QColor("red") for entry in entries})
        plot.grab()  # words find their places as they are painted
        words = [item for item in plot.items() if isinstance(item, pg.TextItem)]
        return [(item.toPlainText(), item.mapRectToScene(item.boundingRect())) for item in words]

    # Three of a kind, one that touches them at second hand, and two whose names alone would meet.
    found = drawn(
        ("1.1", 8.70, 200e3),
        ("2.1", 8.75, 202e3),
        ("3.1", 8.72, 205e3),
        ("4.1", 17.0, 51e3),
        ("5.1", 17.9, 51e3),
        ("6.1", 9.30, 175e3),
    )
    assert sorted(text for text, _ in found) == ["3.1, 2.1, 1.1", "4.1", "5.1", "6.1"]
    for i, (a, area) in enumerate(found):
        assert plot.sceneRect().contains(area), a
        for b, other in found[i + 1 :]:
            assert not area.adjusted(3, 3, -3, -3).intersects(other.adjusted(3, 3, -3, -3)), (a, b)
    many = drawn(*((f"{number}.1", 8.0, 2e5 + number) for number in range(1, 8)))
    assert [text for text, _ in many] == ["7.1, 6.1, 5.1, 4.1 +3"]
