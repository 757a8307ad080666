"""Room: nothing lies over anything else in the smallest window, nothing moves with a setting, no words are cut."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pyqtgraph as pg
import pytest
from PySide6.QtGui import QAction, QColor, QImage
from PySide6.QtWidgets import (
    QApplication,
    QDockWidget,
    QLabel,
    QPushButton,
    QTabBar,
    QTableView,
    QTabWidget,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.gui.axes import EDGE_PX
from explorer.gui.controls import ElidedLabel
from explorer.gui.main_window import SMALLEST_SIZE_PX
from explorer.gui.overview_plots import NAMES_PX
from explorer.gui.readout import Caption, Readout, Readouts
from explorer.gui.result_table import ResultTable
from explorer.gui.token_times_plot import TokenTimesPlot


def test_that_tabs_and_pins_share_their_row_in_the_smallest_window(bench: Bench) -> None:
    window = bench.open()
    window.resize(*SMALLEST_SIZE_PX)
    window.show()
    QApplication.processEvents()
    row = [
        bench.find(QTabBar, "view_tabs"),
        bench.find(QToolButton, "pin_a_button"),
        bench.find(QToolButton, "pin_b_button"),
        bench.find(QPushButton, "compare_button"),
    ]
    places = [(w.mapTo(window, w.rect().topLeft()).x(), w.mapTo(window, w.rect().topRight()).x()) for w in row]
    for (_, right), (left, _) in pairwise(places):
        assert right < left, places
    assert places[-1][1] <= window.width()


def test_that_chips_say_their_part_uncut_in_a_small_window_and_all_of_it_in_a_large_one(bench: Bench) -> None:
    window = bench.open()
    window.show()
    chips = window.panels.pins.chips

    def said(width: int) -> list[str]:
        window.resize(width, 720)
        QApplication.processEvents()
        return [chip.said() for chip in chips]

    assert said(1280) == ["A pin…", "B now"]
    chips[0].show_words("A 第一个设置是这样的", short="A 短")
    assert chips[0].said() == "A 短", "few letters can be all there are"
    chips[0].show_words("A  not pinned", short="A pin…")
    assert said(1920) == ["A  not pinned", "B  now: the settings"]
    window.intent.change(levels=(("attention", "sdpa"),))
    window.comparing.pin(0)
    window.intent.change(levels=(("attention", "sdpa"), ("precision", "bf16")))
    assert said(1280)[1] == "B bf16"
    assert chips[1].toolTip() == "B  now: precision fp32 → bf16"
    assert said(SMALLEST_SIZE_PX[0]) == ["A", "B"]


@pytest.mark.parametrize(("width", "seen"), [(300, "100"), (500, "110"), (700, "111")])
def test_that_readouts_stand_there_whole_or_not_at_all(qtbot: QtBot, width: int, seen: str) -> None:
    readouts = tuple(
        Readout("a number", "tokens/s", widest="8,888 GiB", scale=scale, lead="p50") for scale in (1.0, 1.0, 2.0)
    )
    readouts[1].setVisible(width > 400)
    host = QWidget()
    qtbot.addWidget(host)
    row = Readouts(readouts, caption=Caption("Throughput"))
    row.setParent(host)
    host.show()
    for first_px in (900, 40):  # made narrower, and wider
        row.resize(first_px, 40)
        QApplication.processEvents()
        row.resize(width, 40)
        QApplication.processEvents()
        assert "".join("01"[readout.isVisible()] for readout in readouts) == seen
        assert all(r.geometry().right() < width for r in readouts if r.isVisible())
        assert all(r.width() == r.sizeHint().width() for r in readouts if r.isVisible())
    host.hide()


def test_that_tables_below_plots_show_rows_in_the_smallest_window(bench: Bench) -> None:
    window = bench.open()
    window.resize(*SMALLEST_SIZE_PX)
    window.show()
    series = window.panels.series
    for view, tables in ((series, [page.table for page in series.pages.values()]), (window.panels.lab, [None])):
        window._views.show_view(view)
        for kind, table in zip(series.pages, tables, strict=False):
            series.show_page(kind)
            QApplication.processEvents()
            one = table or window.panels.lab.table
            assert one.viewport().height() >= 3 * one.verticalHeader().defaultSectionSize(), one.objectName()


def test_that_words_of_a_result_are_whole_where_they_would_be_too_narrow(qtbot: QtBot) -> None:
    table = ResultTable(name="results", title="Results", words=1, empty="Press Measure")
    qtbot.addWidget(table)
    words = "+ precision bf16 + attention sdpa + gelu triton"
    table.show_rows(["Run", "What differs", "tokens/s"], [["1.1", words, "192.0k"]], [words])
    table.show()
    needed = table.sizeHintForColumn(1)
    seen = []
    for width in (200, 320, 900, 200):
        table.resize(width, 120)
        QApplication.processEvents()
        seen.append(table.columnWidth(1))
    assert seen[0] == seen[3] == needed, "to be scrolled to"
    assert seen[1] < needed < seen[2], "as wide as there is room"
    table.hide()


@pytest.mark.parametrize("size", [SMALLEST_SIZE_PX, (1280, 720)])
def test_that_the_docks_at_the_right_end_above_the_table_and_hold_all_that_is_in_them(
    bench: Bench, size: tuple[int, int]
) -> None:
    window = bench.open()
    window.resize(*size)
    window.show()
    QApplication.processEvents()
    table = bench.find(QDockWidget, "runs_dock")
    for name, panel in (("text_dock", window.panels.text), ("diagnosis_dock", window.panels.diagnosis)):
        dock = bench.find(QDockWidget, name)
        dock.raise_()
        QApplication.processEvents()
        assert dock.geometry().bottom() < table.geometry().top()
        assert panel.height() >= panel.minimumSizeHint().height()
        below = max(
            child.geometry().bottom()
            for child in panel.findChildren(QWidget)
            if child.parent() is panel and child.isVisible()
        )
        assert below < panel.height()
    assert window.statusBar().geometry().bottom() < window.height()


def test_that_the_forecast_is_as_high_with_one_line_as_with_two(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    bench.choose("workload_combo", "train")
    window.show()
    QApplication.processEvents()
    bar = window.panels.toggles.forecast
    before, words = bar.height(), bar.words()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5, peak_allocated_bytes=3 * 2**30))
    bench.end(start)
    QApplication.processEvents()
    room, metrics = bar.width() - 24, bar.fontMetrics()
    assert metrics.horizontalAdvance(words) <= room < metrics.horizontalAdvance(bar.words())
    assert bar.height() == before
    assert "-0.0%" not in bar.words()


def test_that_a_line_that_is_too_long_ends_in_an_ellipsis_and_keeps_its_text(qtbot: QtBot) -> None:
    label, whole = ElidedLabel(), QLabel()
    for one in (label, whole):
        qtbot.addWidget(one)
        one.setText("attention naive → sdpa, gelu hf → triton, checkpointing off → all")
        one.resize(140, 20)
    assert label.text() == whole.text()

    def dark(widget: QLabel) -> int:
        """Pixels of letters in the last twelve columns: of three dots there are few, of cut letters many."""
        image: QImage = widget.grab().toImage()
        ground = QColor(image.pixel(139, 0))
        columns = range(image.width() - 12, image.width())
        return sum(QColor(image.pixel(x, y)) != ground for x in columns for y in range(11))

    assert dark(label) == 0, "the dots lie on the line"
    assert dark(whole) > 0


@pytest.mark.parametrize(("height", "words"), [(48, False), (130, True)])
def test_that_a_plot_without_room_for_its_words_says_none(qtbot: QtBot, height: int, words: bool) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    plot = TokenTimesPlot()
    plot.setParent(host)
    plot.resize(280, height)
    host.show()
    (label,) = plot.findChildren(QLabel)
    assert label.isVisible() == words
    assert plot.getPlotItem().isVisible() == words
    host.hide()


@pytest.mark.parametrize("width", [270, 900])
def test_that_numbers_below_the_bars_do_not_touch(bench: Bench, width: int) -> None:
    window = bench.open()
    start = bench.start()
    told = steps(start.run_id, 0, 30)
    bench.say(dataclasses.replace(told, samples=tuple(dataclasses.replace(s, tokens=8192) for s in told.samples)))
    bench.end(start)
    panel = window.panels.overview
    panel.bars.resize(width, 200)
    panel.bars.apply_theme(False)
    panel._shown = ()
    panel.refresh()
    axis: pg.AxisItem = panel.bars.getPlotItem().getAxis("bottom")
    (low, high), size = axis.range, width - NAMES_PX - EDGE_PX
    _, values = axis.tickValues(low, high, size)[0]
    said = axis.tickStrings(values, 1.0, 1.0)
    assert len(said) >= 3
    places = [(value - low) / (high - low) * size for value in values]
    widths = [panel.bars.fontMetrics().horizontalAdvance(text) for text in said]
    for (x0, w0), (x1, w1) in pairwise(zip(places, widths, strict=True)):
        assert x0 + w0 / 2 + 4 < x1 - w1 / 2


@pytest.mark.parametrize(
    ("tab", "page", "name"),
    [
        (4, None, "lab_table"),
        (5, 0, "ladder_table"),
        (5, 1, "sweep_table"),
        (5, 2, "attribution_table"),
        (5, 3, "floor_table"),
        (3, None, "overview_table"),
    ],
)
def test_that_a_table_without_rows_says_what_to_do(bench: Bench, tab: int, page: int | None, name: str) -> None:
    window = bench.open()
    window.resize(1280, 720)
    bench.find(QAction, f"view_{tab}_action").trigger()
    if page is not None:
        bench.find(QTabWidget, "series_pages").setCurrentIndex(page)
    table = bench.find(QTableView, name)
    bench.until(table.isVisible)
    viewport = table.viewport()
    image = viewport.grab().toImage()
    ground = image.pixelColor(1, 1)
    drawn = [(x, y) for x in range(image.width()) for y in range(image.height()) if image.pixelColor(x, y) != ground]
    assert len(drawn) > 300, "nothing is written"
    assert min(x for x, _ in drawn) > 8
    assert max(x for x, _ in drawn) < image.width() - 8, "cut at the side"
    assert max(y for _, y in drawn) < image.height() - 2, "cut below"
