"""The lab in the window: what is asked of the worker, what is drawn, sorted, kept and exported."""

from __future__ import annotations

import csv
import json
import math
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import pyqtgraph as pg
import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QFileDialog,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QStackedWidget,
    QTableView,
    QToolButton,
)
from window_bench import GPU, environment
from window_bench import Bench as Desk

from explorer.experiments.lab import lab_cases
from explorer.gui.language import catalogue
from explorer.messages import Bench, Benched, Progress, RunEnded, Start, WorkerLost
from explorer.results.lab import Case, LabRow, Outcome
from explorer.results.lab_words import NAMES, lab_words, name_of

PATIENCE_S = 20.0
CARD = {"copy_gb_per_s": 4000.0, "product_tflop_per_s": 800.0}


def only(desk: Desk, *names: str) -> None:
    """Tick these operations and no others."""
    for action in desk.find(QToolButton, "lab_operations").menu().actions():
        action.setChecked(action.data() in names)


def measuring(desk: Desk) -> Bench:
    """The next command to the worker, once it is there."""

    def asked() -> list[Bench]:
        return [c for c in desk.worker.commands if isinstance(c, Bench)]

    seen = getattr(desk, "seen", 0)
    desk.until(lambda: len(asked()) > seen)
    desk.seen = seen + 1  # type: ignore[attr-defined]
    return asked()[seen]


def row(case: Case, variant: str, time_us: float, outcome: Outcome = "measured", **more: float) -> LabRow:
    figures = {**CARD, "spread": 0.01, "host_us": 9.0, "rel_error": 1e-3, **more}
    return LabRow(case=case, variant=variant, outcome=outcome, time_us=time_us, **figures)  # type: ignore[arg-type]


def answer(desk: Desk, bench: Bench, times_us: dict[str, float]) -> None:
    """The worker measures all variants of ``bench``."""
    rows = [row(bench.case, v, times_us.get(v, 50.0), peak_bytes=2**20) for v in bench.variants]
    desk.say(*(Benched(run_id=bench.run_id, row=r) for r in rows), RunEnded(run_id=bench.run_id, outcome="completed"))


def cells(desk: Desk, column: int) -> list[str]:
    model = desk.find(QTableView, "lab_table").model()
    return [model.index(r, column).data() for r in range(model.rowCount())]


def test_that_chosen_operations_are_measured_case_by_case_and_shown_as_they_come(desk: Desk) -> None:
    window = desk.open()
    only(desk, "gelu", "layout")
    assert desk.find(QToolButton, "lab_operations").text() == "2 operations"
    desk.find(QAction, "start_lab_action").trigger()
    assert desk.find(QStackedWidget, "views").currentWidget() is window.panels.lab
    wanted = lab_cases(GPU, quick=True, only=["gelu", "layout"])
    first = measuring(desk)
    assert (first.case, first.variants, first.quick) == (wanted[0].case, wanted[0].variants, True)
    assert not desk.find(QPushButton, "start_button").isEnabled()
    assert not desk.find(QPushButton, "compare_button").isEnabled()
    desk.say(Progress(run_id=first.run_id, activity="gelu bfloat16 8192x3072: hf"))
    assert desk.find(QLabel, "lab_progress").text() == f"gelu bfloat16 8192x3072: hf · 0 of {len(wanted)} cases"
    answer(desk, first, {"hf": 80.0, "triton": 20.0})
    assert cells(desk, 3) == ["transformers' own", "torch", "torch.compile", "ours"]
    assert cells(desk, 6) == ["4.00x", "2.50x", "2.50x", "1.00x"]
    ids = {first.run_id}
    for one in wanted[1:]:
        bench = measuring(desk)
        assert bench.case == one.case
        ids.add(bench.run_id)
        answer(desk, bench, {})
    desk.until(lambda: not window.bridge.going)
    assert len(ids) == len(wanted), "each has an id of its own"
    assert desk.find(QLabel, "lab_progress").text() == f"{sum(len(w.variants) for w in wanted)} results on Big GPU"
    assert "ours takes 20.0 us" not in desk.find(QPlainTextEdit, "lab_words").toPlainText(), "the largest case is told"
    start = desk.start()
    assert start.run_id == 1, "the lab takes no run's number"
    desk.end(start)


def test_that_columns_sort_by_value_and_what_is_unknown_comes_last(desk: Desk) -> None:
    window = desk.open()
    case = Case(operation="gelu", dtype="bfloat16", shape=(64, 3072))
    rows = [row(case, "hf", 1000.0), row(case, "torch", 9.0), row(case, "triton", math.nan, "failed")]
    window.panels.lab.show_rows(rows)
    table = desk.find(QTableView, "lab_table")
    assert cells(desk, 4) == ["1,000.0", "9.0", "–"]
    table.sortByColumn(4, Qt.SortOrder.AscendingOrder)
    assert cells(desk, 4) == ["9.0", "1,000.0", "–"]
    table.selectionModel().select(
        table.model().index(0, 0),
        QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows,
    )
    rings = [item for item in scatters(desk, "roofline_plot") if item.opts["brush"].style() == Qt.BrushStyle.NoBrush]
    assert [len(ring.data) for ring in rings] == [1]
    assert rings[0].data["y"][0] == pytest.approx(math.log10(case.flop / 9.0 / 1e6))


def scatters(desk: Desk, plot: str) -> list[pg.ScatterPlotItem]:
    items = desk.find(pg.GraphicsView, plot).getPlotItem().items
    return [item for item in items if isinstance(item, pg.ScatterPlotItem)]


def lines(desk: Desk, plot: str) -> list[list[tuple[float, float]]]:
    """The lines of a plot, in the numbers that its axes say."""
    items = desk.find(pg.GraphicsView, plot).getPlotItem().listDataItems()
    found = [item.getData() for item in items if isinstance(item, pg.PlotDataItem)]
    return [[(10**x, 10**y) for x, y in zip(*data, strict=True)] for data in found]


def test_that_the_roof_is_the_measured_copy_and_product_and_points_lie_under_it(desk: Desk) -> None:
    window = desk.open()
    case = Case(operation="attention", dtype="bfloat16", shape=(8, 12, 1024, 64))
    window.panels.lab.show_rows([row(case, "flash", 100.0), row(case, "triton", 200.0)])
    said = {
        i.toPlainText()
        for i in desk.find(pg.GraphicsView, "roofline_plot").getPlotItem().items
        if isinstance(i, pg.TextItem)
    }
    assert said == {"bfloat16: 800 TFLOP/s", "/ copy: 4,000 GB/s"}
    (roof,) = lines(desk, "roofline_plot")
    (_, (ridge, top), (_, still)) = roof
    assert (ridge, top, still) == pytest.approx((200.0, 800.0, 800.0)), "800 TFLOP/s over 4 TB/s"
    for (x0, y0), (x1, y1) in pairwise(roof[:2]):
        assert y1 / y0 == pytest.approx(x1 / x0), "up to there it rises with the arithmetic on a byte"
    (points,) = scatters(desk, "roofline_plot")
    flop, moved = 2 * (8 * 12) * 1024 * 1024 * 64, 4 * 8 * 12 * 1024 * 64 * 2
    assert 10 ** points.data["x"] == pytest.approx([flop / moved] * 2)
    assert 10 ** points.data["y"] == pytest.approx([flop / 100e-6 / 1e12, flop / 200e-6 / 1e12])


def test_that_attention_is_drawn_over_its_length_and_out_of_memory_is_a_cross(desk: Desk) -> None:
    window = desk.open()

    def at(tokens: int, dtype: str = "bfloat16") -> Case:
        return Case(operation="attention", dtype=dtype, shape=(8, 12, tokens, 64))  # type: ignore[arg-type]

    window.panels.lab.show_rows(
        [
            row(at(4096), "flash", 900.0, peak_bytes=3 * 2**20),
            row(at(1024), "flash", 100.0, peak_bytes=2**20),
            row(at(1024), "naive", 700.0, peak_bytes=8 * 2**20),
            row(at(4096), "naive", math.nan, "out of memory"),
            row(at(1024, "float32"), "flash", 5.0, peak_bytes=2**20),
        ]
    )
    close = pytest.approx
    assert lines(desk, "attention_time_plot") == [[close((1024, 100.0)), close((4096, 900.0))], [close((1024, 700.0))]]
    assert lines(desk, "attention_memory_plot") == [[close((1024, 1.0)), close((4096, 3.0))], [close((1024, 8.0))]]
    for plot in ("attention_time_plot", "attention_memory_plot"):
        (cross,) = [item for item in scatters(desk, plot) if item.opts["symbol"] == "x"]
        assert 10 ** cross.data["x"] == close([4096])
        (low, high) = desk.find(pg.GraphicsView, plot).getPlotItem().viewRange()[1]
        assert low < cross.data["y"][0] < high


def test_that_what_was_measured_is_kept_and_the_next_window_goes_on(desk: Desk, tmp_path: Path) -> None:
    window = desk.open()
    only(desk, "gelu")
    desk.find(QPushButton, "lab_start").click()
    answer(desk, measuring(desk), {"triton": 20.0})
    second = measuring(desk)
    desk.find(QPushButton, "stop_button").click()
    desk.say(RunEnded(run_id=second.run_id, outcome="stopped"))
    desk.until(lambda: not window.bridge.going)
    assert cells(desk, 4) == ["50.0", "50.0", "50.0", "20.0"]
    window.close()

    window, desk.seen = desk.open(), 0  # type: ignore[attr-defined]
    only(desk, "gelu")
    desk.find(QPushButton, "lab_start").click()
    assert measuring(desk).case == second.case
    assert cells(desk, 4) == ["50.0", "50.0", "50.0", "20.0"]
    desk.find(QPushButton, "lab_stop").click()
    desk.say(RunEnded(run_id=window.bridge.reserve_id() + 1, outcome="stopped"))
    desk.until(lambda: not window.bridge.going)
    desk.find(QCheckBox, "lab_go_on").setChecked(False)
    desk.find(QPushButton, "lab_start").click()
    anew = measuring(desk)
    desk.until(lambda: not any((tmp_path / "stored").glob("lab-*.json")))
    assert anew.case == lab_cases(GPU, quick=True, only=["gelu"])[0].case, "all is measured anew"
    assert cells(desk, 4) == []
    desk.find(QPushButton, "lab_stop").click()
    desk.say(RunEnded(run_id=anew.run_id, outcome="stopped"))
    desk.until(lambda: not window.bridge.going)


def test_that_a_dead_worker_leaves_a_row_and_the_lab_goes_on_in_another(desk: Desk) -> None:
    window = desk.open()
    only(desk, "layout")
    desk.find(QPushButton, "lab_start").click()
    first = measuring(desk)
    desk.say(Benched(run_id=first.run_id, row=row(first.case, first.variants[0], 5.0)))
    desk.worker.say(WorkerLost(exit_code=-11, last_words="segfault"))
    desk.until(lambda: len(desk.workers) == 2)
    desk.seen = 0  # type: ignore[attr-defined]
    again = measuring(desk)
    assert again.variants == first.variants[2:]
    assert cells(desk, 13)[:2] == ["measured", "failed"]
    answer(desk, again, {})
    desk.until(lambda: not window.bridge.going)
    assert desk.find(QLabel, "lab_progress").text().endswith(", 1 failed")


def test_that_a_disk_which_hangs_holds_no_measuring_up_and_has_all_of_it_once_it_answers(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real = os.fsync

    def hangs(number: int) -> None:
        assert answers.wait(PATIENCE_S), "somebody waits for the disk"
        real(number)

    monkeypatch.setattr("explorer.results.atomic.os.fsync", hangs)
    window = desk.open()
    only(desk, "gelu")
    desk.find(QCheckBox, "lab_go_on").setChecked(False)
    desk.find(QPushButton, "lab_start").click()
    began_s = time.monotonic()
    answer(desk, measuring(desk), {"triton": 20.0})
    left = measuring(desk)
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert not answers.is_set()
    assert cells(desk, 4)[:4] == ["50.0", "50.0", "50.0", "20.0"]
    desk.find(QPushButton, "lab_stop").click()
    desk.say(RunEnded(run_id=left.run_id, outcome="stopped"))
    desk.until(lambda: not window.bridge.going)
    answers.set()
    window.close()
    (kept,) = (tmp_path / "stored").glob("lab-*.json")
    stored = json.loads(kept.read_text())["results"]
    assert sum(len(some) for some in stored.values()) == 4


def test_that_what_cannot_be_kept_is_told_and_measured_on(desk: Desk, tmp_path: Path) -> None:
    window = desk.open()
    only(desk, "gelu")
    desk.find(QPushButton, "lab_start").click()
    answer(desk, measuring(desk), {})
    desk.until(lambda: any((tmp_path / "stored").glob("lab-*.json")))
    (kept,) = (tmp_path / "stored").glob("lab-*.json")
    kept.unlink()
    kept.mkdir()
    answer(desk, measuring(desk), {})
    desk.until(lambda: "not kept for another time" in window.messages.text)
    assert "is a folder" in window.messages.text
    assert len(cells(desk, 4)) == 8
    left = measuring(desk)
    desk.find(QPushButton, "lab_stop").click()
    desk.say(RunEnded(run_id=left.run_id, outcome="stopped"))
    desk.until(lambda: not window.bridge.going)


def test_that_no_worker_to_be_had_ends_it_with_words(desk: Desk) -> None:
    window = desk.open()
    only(desk, "layout")
    desk.find(QPushButton, "lab_start").click()
    first = measuring(desk)
    desk.here = None
    desk.worker.say(WorkerLost(exit_code=-11, last_words="segfault"))
    desk.until(lambda: len(desk.workers) == 2)
    desk.worker.say(WorkerLost(exit_code=1, last_words="no CUDA"))
    desk.until(lambda: not window.bridge.going)
    assert "the worker could not start: no CUDA" in window.messages.text
    assert first.case.operation == "layout"


def test_that_a_lab_that_ends_leaves_a_comparison_on_the_screen_alone(desk: Desk) -> None:
    window = desk.open()
    window.panels.compare.show_activity("a verdict")
    only(desk, "item")
    desk.find(QPushButton, "lab_start").click()
    answer(desk, measuring(desk), {})
    desk.until(lambda: not window.bridge.going)
    assert "a verdict" in {label.text() for label in window.panels.compare.findChildren(QLabel)}
    assert desk.find(QAction, "start_lab_action").isEnabled()


def test_that_the_lab_waits_for_a_run_and_can_be_called_off_before_it_begins(desk: Desk) -> None:
    window = desk.open()
    start = desk.start()
    window.lab.start()
    assert "stop what is going first" in window.messages.text
    assert sum(isinstance(c, (Start, Bench)) for c in desk.worker.commands) == 1
    desk.end(start)


def test_that_the_table_is_exported_as_the_command_line_writes_it(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = desk.open()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "lab.csv"), ""))
    desk.find(QAction, "export_lab_action").trigger()
    assert "nothing to export yet" in window.messages.text
    only(desk, "layout")
    desk.find(QPushButton, "lab_start").click()
    answer(desk, measuring(desk), {"strided": 70.0})
    desk.until(lambda: not window.bridge.going)
    desk.find(QPushButton, "lab_export").click()
    with (tmp_path / "lab.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["variant"], float(r["time_us"])) for r in rows][2] == ("strided", 70.0)
    assert {r["device_name"] for r in rows} == {"Big GPU"}
    assert float(rows[0]["gb_per_s"]) == pytest.approx(2 * 8192 * 3072 * 2 / 50.0 / 1e3)


def test_that_every_sentence_of_the_lab_has_chinese_words(qapp: QApplication) -> None:
    said: list[str] = []

    def say(words: str, **values: object) -> str:
        said.append(words)
        return words.format(**values)

    rows = []
    for one in lab_cases(GPU, quick=False):
        for place, variant in enumerate(one.variants):
            support = one.case.operation == "attention_support"
            outcome: Outcome = ("refused" if place % 2 else "runs") if support else "measured"
            if one.case.operation == "attention" and one.case.shape[2] > 4096 and variant == "naive":
                outcome = "out of memory"
            time_us = 10.0 + place if outcome == "measured" else math.nan
            rows.append(row(one.case, variant, time_us, outcome, peak_bytes=2**30))
    assert len(lab_words(rows, say)) == len({r.case.operation for r in rows})
    assert lab_words(rows, say) == lab_words(rows)
    missing = {*said, *NAMES.values(), *(name_of(r.variant) for r in rows)} - catalogue("zh_CN").keys()
    assert not missing, missing


@pytest.fixture
def desk(bench: Desk) -> Desk:
    """A window on a machine with a GPU."""
    bench.here = environment(GPU)
    return bench
