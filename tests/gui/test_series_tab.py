"""Ladder, sweep and attribution in the window: what is asked of the worker, drawn, kept, remembered and exported."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pyqtgraph as pg
import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QCheckBox,
    QFileDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QStackedWidget,
    QTableWidget,
    QTabWidget,
    QToolButton,
)
from pytestqt.qtbot import QtBot
from scripted import OUT_OF_MEMORY, PROFILE, Answers
from window_bench import GPU, Bench, environment

from explorer.config import RunConfig
from explorer.experiments.floors import known_floor
from explorer.experiments.plans import ladder_plan
from explorer.experiments.suggestions import rungs
from explorer.gui.heat_map import Cell
from explorer.gui.ladder_page import speed_bars
from explorer.gui.row_plots import Bar, RowPlot
from explorer.messages import Compare, ParityChecked, Problem, Profiled, Progress, RunEnded, Start, Stop, Verify
from explorer.results.parity import Arm, Measure, Parity

FACTORS = {"precision": 0.5, "attention": 0.8, "gelu": 0.9, "checkpointing": 1.25}
ROOM = 40 * 1024
"""Tokens a step that the scripted device has room for."""


def step_ms(config: RunConfig) -> float:
    return math.prod([float(config.batch * config.seq) / 10.0, *(FACTORS.get(name, 1.0) for name, _ in config.levels)])


def in_room(config: RunConfig) -> float | Problem:
    return OUT_OF_MEMORY if config.batch * config.seq > ROOM else step_ms(config)


def peak_bytes(config: RunConfig) -> int:
    return (20 - 4 * len(config.levels)) * 2**30 + config.batch * config.seq * 2**10


@pytest.fixture
def desk(bench: Bench) -> Bench:
    """A window on a machine with a GPU, set to train with two toggles."""
    bench.here = environment(GPU)
    bench.open()
    bench.choose("workload_combo", "train")
    bench.choose("toggle_precision", "bf16")
    bench.choose("toggle_attention", "sdpa")
    return bench


def serve(desk: Bench, answers: Answers, until: Callable[[], bool] | None = None) -> None:
    """Let ``answers`` be the worker until the experiment has ended, or ``until`` holds."""
    done = until or (lambda: not desk.window.bridge.going)
    while not done():
        taken = getattr(desk.worker, "taken", 0)
        desk.until(lambda taken=taken: done() or len(desk.worker.commands) > taken)
        desk.worker.taken = len(desk.worker.commands)  # type: ignore[attr-defined]
        desk.say(*answers.to(desk.worker.commands[taken:]))


def text(desk: Bench, kind: str) -> str:
    return desk.find(QLabel, f"{kind}_progress").text()


def column(desk: Bench, table: str, number: int) -> list[str]:
    found = desk.find(QTableWidget, table)
    return [found.item(row, number).text() for row in range(found.rowCount())]


def unchecked(desk: Bench, kind: str) -> None:
    for name in ("parity", "proof"):
        desk.find(QCheckBox, f"{kind}_{name}").setChecked(False)


def test_that_one_click_climbs_the_toggles_that_are_set_from_a_bare_baseline(desk: Bench) -> None:
    desk.find(QAction, "ladder_action").trigger()
    window = desk.window
    assert desk.find(QStackedWidget, "views").currentWidget() is window.panels.series
    assert desk.find(QTabWidget, "series_pages").currentWidget() is window.panels.series.ladder
    assert desk.find(QLineEdit, "ladder_rungs").placeholderText() == "precision=bf16 attention=sdpa"
    answers = Answers(step_ms, peak_bytes)
    desk.find(QPushButton, "ladder_start").click()
    assert not desk.find(QPushButton, "start_button").isEnabled()
    serve(desk, answers)
    base = RunConfig(model="gpt2", batch=8, seq=1024, levels=(("dropout", "off"),))
    bf16 = base.with_level("precision", "bf16")
    assert [(a.levels, b.levels) for a, b in answers.compared] == [
        (base.levels, bf16.levels),
        (bf16.levels, bf16.with_level("attention", "sdpa").levels),
    ]
    assert column(desk, "ladder_table", 0) == ["baseline", "+ precision=bf16", "+ attention=sdpa"]
    assert column(desk, "ladder_table", 4)[2] == "2.500x (2.500 – 2.500) faster"
    bars = window.panels.series.ladder.speed.bars
    assert [bar.value for bar in bars] == pytest.approx([1.0, 2.0, 2.5])
    assert [bar.below for bar in bars[1:]] == pytest.approx([1.0, 2.0])
    assert [bar.floor for bar in bars[1:]] == [0.005, 0.005]
    assert [bar.words for bar in bars] == ["1.00x", "2.00x", "2.50x (× 1.25)"]
    memory = window.panels.series.ladder.memory.bars
    assert [bar.value for bar in memory] == pytest.approx([peak_bytes(c) / 2**30 for c in (base, *_rungs(answers))])
    assert column(desk, "ladder_table", 8) == ["reference", "failed", "failed"], "the script has no room for parity"
    assert text(desk, "ladder") == "3 rows"
    assert len(window.log.runs) == 4, "both arms of each comparison are runs of the table"
    drawn = window.panels.compare.blocks_plot.getPlotItem().listDataItems()
    assert all(item.getData()[0] is None or not len(item.getData()[0]) for item in drawn), (
        "it is no comparison of A and B"
    )
    start = desk.start()
    assert start.run_id == 5, "checks take no run's number"
    desk.end(start)


def test_that_a_failed_rung_is_told_with_its_reason_where_it_is_seen(desk: Bench) -> None:
    unchecked(desk, "ladder")
    desk.find(QPushButton, "ladder_start").click()
    serve(desk, Answers(lambda config: OUT_OF_MEMORY if config.level("attention") else step_ms(config)))
    assert desk.window.messages.text == "1 of 3 rows failed: Out of memory: too much."


def test_that_each_page_says_how_to_begin_and_lets_the_budget_be_set(desk: Bench) -> None:
    for kind, page in desk.window.panels.series.pages.items():
        assert text(desk, kind).startswith("Press Measure.")
        assert page.budget.isVisibleTo(page)
    desk.choose("workload_combo", "generate")
    for kind in desk.window.panels.series.pages:
        assert text(desk, kind).startswith("Choose Train at the top left first")
    suggested = desk.find(QLineEdit, "ladder_rungs").placeholderText()
    assert suggested == "precision=bf16 attention=sdpa", "what training would climb"


def _rungs(answers: Answers) -> list[RunConfig]:
    return [b for _, b in answers.compared]


def test_that_parity_is_drawn_against_what_is_allowed_and_red_outside_it(desk: Bench) -> None:
    def parity(share: float) -> Parity:
        measure = Measure(kind="logits", value=share * 1e-3, yardstick=1e-3, allowed=1e-3)
        arms = {name: Arm(losses=(1.0,)) for name in ("reference", "yardstick", "asked")}
        return Parity(measures=(measure,), **arms, batch=8, logits_max_abs=0.1)

    desk.find(QPushButton, "ladder_start").click()
    serve(desk, Answers(step_ms), until=lambda: any(isinstance(c, Verify) for c in desk.worker.commands))
    (verify,) = (c for c in desk.worker.commands if isinstance(c, Verify))
    desk.say(ParityChecked(run_id=verify.run_id, config=verify.parity[0], found=parity(0.5)))
    errors = desk.window.panels.series.ladder.errors
    assert [(bar.value, bar.bad) for bar in errors.bars[1:2]] == [(pytest.approx(0.5), False)]
    assert text(desk, "ladder").startswith("parity of attention=sdpa · ")
    desk.say(ParityChecked(run_id=verify.run_id, config=verify.parity[1], found=parity(3.0)))
    assert [(bar.value, bar.bad) for bar in errors.bars[2:]] == [(pytest.approx(3.0), True)]
    desk.say(Progress(run_id=verify.run_id, activity="proof: profiling"))
    told = text(desk, "ladder").split(" · ")
    assert told[:2] == ["proof of baseline", "3 left to do"]
    assert told[2].startswith("about ")
    assert told[3:] == ["proof: profiling…"]
    desk.say(*(Profiled(run_id=verify.run_id, config=c, found=PROFILE) for c in verify.proof))
    desk.say(RunEnded(run_id=verify.run_id, outcome="completed"))
    desk.until(lambda: not desk.window.bridge.going)
    assert column(desk, "ladder_table", 8) == ["reference", "within tolerance", "outside tolerance"]


def test_that_a_ladder_that_was_stopped_goes_on_in_the_next_window_and_what_was_asked_is_remembered(
    desk: Bench,
) -> None:
    unchecked(desk, "ladder")
    edit = desk.find(QLineEdit, "ladder_rungs")
    edit.setText("precision=bf16 attention=sdpa gelu=torch")
    desk.find(QPushButton, "ladder_start").click()
    first = Answers(step_ms)
    serve(desk, first, until=lambda: len(first.compared) == 2)
    desk.find(QPushButton, "ladder_stop").click()
    serve(desk, first)
    assert any(isinstance(c, Stop) for c in desk.worker.commands)
    desk.window.close()

    window = desk.open()
    assert desk.find(QLineEdit, "ladder_rungs").text() == "precision=bf16 attention=sdpa gelu=torch"
    assert not desk.find(QCheckBox, "ladder_parity").isChecked()
    again = Answers(step_ms)
    desk.find(QPushButton, "ladder_start").click()
    serve(desk, again)
    assert [b.level("gelu") for b in _rungs(again)][-1] == "torch"
    assert 1 <= len(again.compared) <= 2, "the first rung is known"
    assert column(desk, "ladder_table", 0)[-1] == "+ gelu=torch"
    desk.find(QCheckBox, "ladder_go_on").setChecked(False)
    anew = Answers(step_ms)
    desk.find(QPushButton, "ladder_start").click()
    serve(desk, anew)
    assert len(anew.compared) == 3
    assert not window.bridge.going


def test_that_a_sweep_draws_what_does_not_fit_and_finds_the_largest_batch(desk: Bench) -> None:
    desk.find(QAction, "sweep_action").trigger()
    desk.find(QLineEdit, "sweep_batches").setText("8, 32, 64")
    desk.find(QLineEdit, "sweep_seqs").setText("512,1024")
    desk.find(QPushButton, "sweep_start").click()
    serve(desk, Answers(in_room, peak_bytes))
    page = desk.window.panels.series.sweep
    assert page.throughput.largest == {512: "≥ 64", 1024: "largest: 40"}
    cells = page.throughput.cells
    assert cells[1024, 41] == Cell(words="OOM", full=True)
    assert cells[1024, 40].words == "fits"
    assert cells[1024, 32].value == pytest.approx(32 * 1024 / step_ms(_sized(desk, 32, 1024)) * 1e3)
    assert {batch for _, batch in cells} == {8, 32, 40, 41, 64}, "probes on the way have no column"
    assert page.memory.cells[512, 64].value == peak_bytes(_sized(desk, 64, 512))
    assert column(desk, "sweep_table", 2).count("out of memory") >= 2
    assert all(c.levels == _sized(desk, 8, 512).levels for c in _started(desk))


def _sized(desk: Bench, batch: int, seq: int) -> RunConfig:
    return next(c for c in _started(desk) if (c.batch, c.seq) == (batch, seq))


def _started(desk: Bench) -> list[RunConfig]:
    return [c.config for c in desk.worker.commands if isinstance(c, Start)]


def test_that_an_attribution_tells_its_effects_in_a_plot_and_in_sentences(desk: Bench) -> None:
    desk.find(QAction, "attribution_action").trigger()
    unchecked(desk, "attribution")
    assert desk.find(QLineEdit, "attribution_toggles").placeholderText() == "precision=bf16 attention=sdpa"

    def together(config: RunConfig) -> float:
        return 50.0 if config.level("precision") else 62.5 if config.level("attention") else 100.0

    desk.find(QPushButton, "attribution_start").click()
    serve(desk, Answers(together))
    bars = {bar.name: bar.value for bar in desk.window.panels.series.attribution.effects.bars}
    assert bars["attention=sdpa alone"] == pytest.approx(1.6)
    assert bars["attention=sdpa beside all others"] == pytest.approx(1.0)
    assert bars["precision=bf16 x attention=sdpa together"] == pytest.approx(1 / 1.6)
    told = desk.find(QPlainTextEdit, "attribution_words").toPlainText().split("\n\n")
    assert told[1] == (
        "attention=sdpa gives +60.0% (+60.0% to +60.0%) alone, "
        "no difference shown (+0.0% to +0.0%) beside precision=bf16."
    )
    assert column(desk, "attribution_table", 0)[-1] == "attention=sdpa precision=bf16"


def test_that_what_cannot_be_measured_is_refused_with_its_reason(desk: Bench) -> None:
    edit = desk.find(QLineEdit, "ladder_rungs")
    for wrong, words in (
        ("precision", "write TOGGLE=LEVEL"),
        ("precision=fp32", "changes nothing"),
        ("gelu=fast", "allowed: hf, torch"),
    ):
        edit.setText(wrong)
        desk.find(QPushButton, "ladder_start").click()
        assert words in desk.window.messages.text
    desk.find(QLineEdit, "sweep_batches").setText("8;16")
    desk.find(QPushButton, "sweep_start").click()
    assert "whole numbers such as 1,2,4,8" in desk.window.messages.text
    desk.choose("workload_combo", "generate")
    desk.find(QPushButton, "attribution_start").click()
    assert "the workload is generate" in desk.window.messages.text
    assert not any(isinstance(c, (Compare, Start)) for c in desk.worker.commands)


def test_that_a_toggle_can_be_added_from_the_menu_to_what_is_suggested(desk: Bench) -> None:
    menu = desk.find(QToolButton, "ladder_add").menu()
    (action,) = (a for within in menu.findChildren(QMenu) for a in within.actions() if a.text() == "gelu=triton")
    action.trigger()
    assert desk.find(QLineEdit, "ladder_rungs").text() == "precision=bf16 attention=sdpa gelu=triton"


def test_that_the_table_is_exported_as_the_command_line_writes_it(
    desk: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_a: (str(tmp_path / "l.csv"), ""))
    desk.find(QPushButton, "ladder_export").click()
    assert "nothing to export yet" in desk.window.messages.text
    unchecked(desk, "ladder")
    desk.find(QPushButton, "ladder_start").click()
    serve(desk, Answers(step_ms))
    desk.find(QPushButton, "ladder_export").click()
    with (tmp_path / "l.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["setting"] for row in rows] == ["baseline", "precision=bf16", "attention=sdpa"]
    assert float(rows[2]["speedup_vs_baseline"]) == pytest.approx(2.5)
    assert float(rows[2]["tflop_per_s"]) > 0


def test_that_a_rung_that_failed_and_one_that_is_slower_are_drawn_as_such() -> None:
    plan = ladder_plan(
        RunConfig(levels=(("precision", "bf16"),)), GPU, "precision=bf16 checkpointing=all", parity=False, proof=False
    )
    assert [one.name for one in rungs(RunConfig(levels=(("precision", "bf16"),)), GPU)] == ["precision=bf16"]
    empty = dict.fromkeys(("problem", "speedup", "ci_low_vs_baseline", "ci_high_vs_baseline", "floor"))
    rows = [
        {**empty, "rung": 0, "setting": "baseline", "step_ms_median": 10.0, "speedup_vs_baseline": None},
        {**empty, "rung": 1, "setting": "a", "step_ms_median": None, "speedup_vs_baseline": None, "problem": "no room"},
        {**empty, "rung": 2, "setting": "b", "step_ms_median": 20.0, "speedup_vs_baseline": 0.5, "speedup": 0.5},
    ]
    bars = speed_bars(rows)
    assert [(bar.words, bar.bad) for bar in bars] == [
        ("1.00x", False),
        ("failed", True),
        ("0.50x (× 0.50)", True),
    ]
    assert [bar.below for bar in bars[1:]] == [1.0, 1.0], "above one that failed stands the one below it"
    assert plan.base.levels == (("dropout", "off"),)


def test_that_the_floor_of_the_settings_is_measured_kept_and_told(
    desk: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    desk.find(QAction, "floor_action").trigger()
    desk.find(QSpinBox, "floor_repeats").setValue(6)
    answers = Answers(step_ms, pairs=40)
    desk.find(QPushButton, "floor_start").click()
    serve(desk, answers, until=lambda: len(answers.compared) == 2)
    assert text(desk, "floor").startswith("comparison 6 of 6 · 1 left to do")
    serve(desk, answers)
    assert len(answers.compared) == 2, "five comparisons of one pair of arms, and one of another"
    a, b = answers.compared[0]
    assert a == b
    assert (a.level("precision"), a.level("attention"), a.level("dropout")) == ("bf16", "sdpa", "off")
    told = desk.find(QLabel, "floor_words").text()
    assert told.startswith(
        "floor: 0.000%, from 6 comparisons of equal arms\nof equal arms, the second was called slower in 0"
    )
    assert [bar.value for bar in desk.window.panels.series.floor.plot.bars] == [1.0] * 6
    assert column(desk, "floor_table", 2) == ["no difference shown"] * 6
    assert not desk.window.log.runs, "its comparisons are no runs of the table"
    assert known_floor((a,), desk.window.log.environment, block_s=2.0) == (0.0, True)
    desk.find(QCheckBox, "floor_delay").setChecked(True)
    again = Answers(step_ms)
    desk.find(QPushButton, "floor_start").click()
    serve(desk, again, until=lambda: len(again.compared) == 1)
    (command,) = (c for c in again.sent if isinstance(c, Compare))
    assert command.delays == (0.02,)
    desk.find(QPushButton, "floor_stop").click()
    serve(desk, again)
    assert not desk.window.bridge.going


def test_that_a_floor_that_cannot_be_kept_ends_with_words(
    desk: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    desk.find(QPushButton, "floor_start").click()
    serve(desk, Answers(step_ms))
    assert "the floor could not be kept in" in desk.window.messages.text
    assert desk.find(QPushButton, "floor_start").isEnabled()


def test_that_words_are_left_out_where_rows_are_lower_than_they_are(qtbot: QtBot) -> None:
    plot = RowPlot(name="p", title="t", words="", unit="u", names_px=60)
    qtbot.addWidget(plot)

    def shown() -> tuple[int, int]:
        texts = [item for item in plot.items() if isinstance(item, pg.TextItem)]
        return len(texts), len(plot.getPlotItem().getAxis("left")._tickLevels[0])

    plot.resize(600, 800)
    plot.show()
    plot.show_bars([Bar(name=str(row), words="1.00x", value=1.0) for row in range(20)])
    assert shown() == (20, 20)
    plot.resize(600, 160)
    assert shown()[0] == 0
    assert 2 <= shown()[1] <= 10, "every other name, or fewer"
    plot.hide()
