"""The table of runs on a real view: cells against numbers worked out beside it."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import replace

import numpy as np
import pytest
from made_samples import GIB, begun, segment, steps
from PySide6.QtCore import QItemSelectionModel, QSize, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from explorer.config import RunConfig
from explorer.gui.palette import run_colour
from explorer.gui.runs_model import COLUMNS, RunsModel
from explorer.gui.runs_table import RunsTable
from explorer.results.log import RunLog

TITLES = [column.title for column in COLUMNS]
TRAIN = RunConfig(device="cuda:0")
FAST_MS = [900.0, *(40.0 + i % 7 for i in range(200))]


@pytest.fixture
def log() -> RunLog:
    """Run 1 trains in two segments, run 2 has made one step on the CPU."""
    log = RunLog()
    begun(log, TRAIN, 1)
    log.append(1, steps(FAST_MS, tokens=8192))
    changed = dataclasses.replace(
        segment(1, 201, "precision fp32 -> bf16"), flop_per_token=1e8, ceiling_tflop_per_s=400.0
    )
    log.begin_segment(1, TRAIN.with_level("precision", "bf16"), changed)
    log.append(1, steps([10.0] * 30, index=1, first_step=201, start_s=9.6, tokens=8192, peak_bytes=GIB // 2))
    log.end(1, "completed")
    begun(log, RunConfig(device="cpu", model="mini", batch=2, seq=64), 2)
    log.append(2, steps([500.0], peak_bytes=-1))
    return log


@pytest.fixture
def table(qtbot: QtBot, log: RunLog) -> RunsTable:
    made = RunsTable(log)
    qtbot.addWidget(made)
    made.resize(1200, 200)
    made.show()
    qtbot.waitExposed(made)
    return made


def cells(table: RunsTable, row: int) -> dict[str, str]:
    return {title: table.model().index(row, column).data() for column, title in enumerate(TITLES)}


def test_that_each_segment_is_a_row_with_its_own_numbers(table: RunsTable) -> None:
    assert table.model().rowCount() == 3
    timed = FAST_MS[1:]
    rates = [8192 / ms for ms in timed]
    row = cells(table, 0)
    assert row["Run"] == "1.1"
    assert (row["Workload"], row["Model"], row["B × T"], row["Steps"]) == ("train", "gpt2", "8 × 1024", "201")
    assert row["tokens/s"] == f"{statistics.median(rates):.1f}k"
    low, high = np.quantile(rates, (0.05, 0.95))
    assert row["p5 – p95"] == f"{low:.1f}k – {high:.1f}k"
    assert row["ms/step"] == f"{statistics.median(timed):.1f}"
    assert (row["Peak"], row["Held"]) == ("3.00 GiB", "4.00 GiB")
    assert row["Loss"] == "5.000 → 3.000"
    assert row["State"] == "changed"


def test_that_a_segment_says_what_differs_and_how_the_run_ended(table: RunsTable) -> None:
    row = cells(table, 1)
    assert row["Run"] == "1.2"
    assert row["What differs"] == "+ precision bf16"
    assert row["State"] == "completed"
    assert (row["Peak"], row["Held"]) == ("512.0 MiB", "1.50 GiB")
    # 819.2k tokens/s of 1e8 FLOP each are 81.92 TFLOP/s, of 400.
    assert (cells(table, 0)["MFU"], row["MFU"]) == ("–", "20.5%")


def test_that_what_was_not_measured_is_a_dash(table: RunsTable) -> None:
    row = cells(table, 2)
    assert (row["tokens/s"], row["p5 – p95"], row["ms/step"], row["Peak"]) == ("–", "–", "–", "–")
    assert row["Held"] == "–"
    assert row["State"] == "running"


def test_that_generation_has_no_loss_and_a_failing_one_is_said(table: RunsTable, log: RunLog, qtbot: QtBot) -> None:
    begun(log, replace(TRAIN, workload="generate"), 3)
    log.append(3, steps([30.0, 5.0, 5.0], first="prefill", tokens=1, trains=False))
    begun(log, TRAIN, 4)
    samples = steps([900.0, 50.0, 50.0])
    log.append(4, [*samples[:2], replace(samples[2], loss=float("nan"))])
    table.refresh()
    qtbot.waitUntil(lambda: table.model().rowCount() == 5)
    assert cells(table, 3)["Loss"] == "–"
    assert cells(table, 3)["B × T"] == "8 × 128"
    assert cells(table, 4)["Loss"] == "5.000 → not finite"


def test_that_numbers_before_step_times_settle_are_marked(table: RunsTable, log: RunLog, qtbot: QtBot) -> None:
    drifting = [replace(s, phase="warmup") for s in steps([100.0 - i for i in range(30)], start_s=0.5, first_step=1)]
    log.append(2, drifting)
    table.refresh()
    qtbot.waitUntil(lambda: cells(table, 2)["Steps"] == "31")
    assert cells(table, 2)["tokens/s"].startswith("~ ")
    assert cells(table, 2)["ms/step"].startswith("~ ")
    assert "had not settled" in table.model().index(2, 0).data(Qt.ItemDataRole.ToolTipRole)
    assert not cells(table, 0)["tokens/s"].startswith("~")


def test_that_the_tooltip_holds_the_whole_configuration(table: RunsTable) -> None:
    tooltip = table.model().index(1, 3).data(Qt.ItemDataRole.ToolTipRole)
    assert "Changed here: precision fp32 -> bf16" in tooltip
    assert "precision=bf16" in tooltip
    assert "attention=naive" in tooltip
    assert all(f"{name}: " in tooltip for name in RunConfig().to_dict())


def test_that_a_failed_run_says_why(table: RunsTable, log: RunLog, qtbot: QtBot) -> None:
    log.end(2, "failed", "Out of memory: 3 GiB short.")
    table.refresh()
    qtbot.waitUntil(lambda: cells(table, 2)["State"] == "failed")
    assert "Out of memory: 3 GiB short." in table.model().index(2, 0).data(Qt.ItemDataRole.ToolTipRole)


def test_that_headers_sort_by_value_and_not_by_letters(table: RunsTable, log: RunLog, qtbot: QtBot) -> None:
    for run_id, ms in ((3, 5.0), (10, 1000.0)):
        begun(log, TRAIN, run_id)
        log.append(run_id, steps([ms] * 40, tokens=8192))
    table.refresh()
    qtbot.waitUntil(lambda: table.model().rowCount() == 5)
    assert [cells(table, row)["Run"] for row in range(5)] == ["1.1", "1.2", "2.1", "3.1", "10.1"]
    table.sortByColumn(TITLES.index("ms/step"), Qt.SortOrder.AscendingOrder)
    assert [cells(table, row)["ms/step"] for row in range(5)] == ["–", "5.00", "10.0", "43.0", "1,000"]


def test_that_the_swatch_has_the_colour_of_the_run(table: RunsTable) -> None:
    for dark in (False, True):
        table.apply_theme(dark)
        swatch = table.model().index(2, 0).data(Qt.ItemDataRole.DecorationRole)
        assert swatch.size() == QSize(20, 12)
        assert swatch.toImage().pixelColor(10, 6) == run_colour(2, dark)


def test_that_numbers_stand_right_and_words_left(table: RunsTable) -> None:
    sides = {
        title: bool(table.model().index(0, i).data(Qt.ItemDataRole.TextAlignmentRole) & Qt.AlignmentFlag.AlignRight)
        for i, title in enumerate(TITLES)
    }
    assert sides["tokens/s"]
    assert sides["Loss"]
    assert not sides["What differs"]


def test_that_a_selection_names_its_segments_in_whatever_order_they_stand(table: RunsTable) -> None:
    table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    for row in (2, 0):
        table.selectionModel().select(table.model().index(row, 0), flags)
    assert table.selected() == [(2, 0), (1, 0)]


def test_that_new_samples_keep_the_selection(table: RunsTable, log: RunLog, qtbot: QtBot) -> None:
    table.selectRow(2)
    log.append(2, steps([400.0], start_s=0.5, first_step=1, first="steady", peak_bytes=-1))
    table.refresh()
    qtbot.waitUntil(lambda: cells(table, 2)["Steps"] == "2")
    assert (cells(table, 2)["Peak"], cells(table, 2)["Held"]) == ("–", "512.0 MiB")
    assert table.selected() == [(2, 0)]


def test_that_ctrl_c_copies_the_selected_rows_for_a_spreadsheet(table: RunsTable, qtbot: QtBot) -> None:
    table.selectRow(1)
    table.setFocus()
    qtbot.keyClick(table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    header, row = QGuiApplication.clipboard().text().splitlines()
    assert header.split("\t") == TITLES
    assert row.split("\t") == list(cells(table, 1).values())


def test_that_markdown_has_a_rule_and_every_row_when_none_is_selected(table: RunsTable) -> None:
    lines = table.text(markdown=True).splitlines()
    assert len(lines) == 2 + 3
    assert all(line.count("|") == len(TITLES) + 1 for line in lines)
    assert lines[1].startswith("| ---: | --- |")


def test_that_the_model_keeps_qts_rules_while_it_grows(log: RunLog, qtbot: QtBot) -> None:
    model = RunsModel(log)
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.refresh()
    begun(log, TRAIN, 7)
    model.refresh()
    assert model.rowCount() == 4
    tester.deleteLater()
    model.deleteLater()


def test_that_only_segments_with_news_are_built_anew(log: RunLog) -> None:
    model = RunsModel(log)
    model.refresh()
    changed: list[int] = []
    model.dataChanged.connect(lambda first, last: changed.append(first.row()))
    log.append(2, steps([400.0], start_s=0.5, first_step=1, first="steady"))
    model.refresh()
    assert changed == [2]
    model.deleteLater()
