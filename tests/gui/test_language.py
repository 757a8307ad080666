"""Every word of the window in English and in Chinese, and from one to the other while a run goes on."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Formatter

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QDockWidget,
    QLabel,
    QMenu,
    QTabBar,
    QTableView,
    QTextBrowser,
    QWidget,
)
from sources import GUI, MARKS, refused_below, said_by_the_registry, said_by_the_window, template
from window_bench import CPU, GPU, Bench, environment, steps

from explorer.config import RunConfig
from explorer.engine.resuming import ENDED_BY_HAND
from explorer.experiments.lab import lab_cases
from explorer.experiments.script import script
from explorer.gui import language, speech
from explorer.gui.help_windows import TextWindow
from explorer.gui.language import catalogue, from_below, tr, without_mnemonic
from explorer.gui.main_window import MainWindow
from explorer.messages import Problem, RunEnded
from explorer.optimizations.registry import OPTIMIZATIONS, by_name
from explorer.results.atomic import check_target
from explorer.results.bundle import read_bundle
from explorer.results.report import report
from explorer.results.runs_csv import read_runs
from explorer.results.store import Store

CHINESE = catalogue("zh_CN")
# Programs of the command line, whose words are English; names of fonts; style rules.
NOT_WORDS = {
    "options.py",
    "hands.py",
    "loop.py",
    "qt_check.py",
    "soak.py",
    "tour.py",
    "window_tax.py",
    "speech.py",
    "theme.py",
}


@pytest.fixture(autouse=True)
def english_again(qapp: QApplication) -> Iterator[None]:
    yield
    speech.speak(qapp, "en")


@pytest.fixture
def fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can draw Chinese: what is said does not depend on how it looks."""
    monkeypatch.setattr(speech, "missing_font", lambda wanted: None)


# ---- the catalogue


def test_that_every_literal_of_the_window_has_a_translation() -> None:
    said = list(said_by_the_window())
    assert len(said) > 300
    missing = [f"{where}: {words!r}" for words, where in said if words and words not in CHINESE]
    assert not missing, "put into assets/zh_CN.json:\n" + "\n".join(missing)


def test_that_every_toggle_is_explained_in_chinese() -> None:
    missing = [f"{where}: {words!r}" for words, where in said_by_the_registry() if words not in CHINESE]
    assert not missing, "put into assets/zh_CN.json:\n" + "\n".join(missing)


def test_that_what_is_refused_below_is_told_in_chinese() -> None:
    told = list(refused_below())
    assert len(told) > 100
    missing = [f"{where}: {words!r}" for words, where in told if words not in CHINESE]
    assert not missing, "put into assets/zh_CN.json, values as {0}, {1}, …:\n" + "\n".join(missing)


def test_that_translations_keep_places_mnemonics_and_markup() -> None:
    def places(words: str) -> list[tuple[str, str | None]]:
        return sorted((name, form) for _, name, form, _ in Formatter().parse(words) if name is not None)

    for source, said in CHINESE.items():
        assert said.strip(), source
        assert places(said) == places(source), source
        assert said.count("&") == source.count("&"), source
        for tag in ("<b>", "</b>", "<i>", "</i>", "<sup>"):
            assert said.count(tag) == source.count(tag), source
        assert said.count("\n") == source.count("\n"), source


def test_that_no_translation_is_of_words_that_nobody_says_any_more() -> None:
    said = {words for words, _ in itertools.chain(said_by_the_window(), said_by_the_registry())}
    for path in GUI.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                said.add(template(node))
    stale = [source for source in CHINESE if source not in said]
    assert not stale, stale


def test_that_no_sentence_of_the_window_goes_around_the_translation() -> None:
    """A literal with a blank between two words is shown to somebody, unless a docstring, a name or Qt's own."""
    found = []
    for path in sorted(GUI.glob("*.py")):
        if path.name in NOT_WORDS:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        quiet = {
            id(node)
            for outer in ast.walk(tree)
            if (isinstance(outer, ast.Expr) and isinstance(outer.value, ast.Constant))
            or isinstance(outer, (ast.Raise, ast.Assert))
            or (
                isinstance(outer, ast.Call)
                and getattr(outer.func, "id", getattr(outer.func, "attr", "")) in {*MARKS, "from_below", "Literal"}
            )
            or (isinstance(outer, ast.Subscript) and getattr(outer.value, "id", "") == "Literal")
            for node in ast.walk(outer)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
                words = node.value
                letters = [w for w in words.split() if w.isalpha() and len(w) > 1]
                if len(letters) > 1 and words not in QUIET_WORDS:
                    found.append(f"{path.name}:{node.lineno}: {words!r}")
    assert not found, "\n".join(found)


QUIET_WORDS = {
    "GPT-2 Optimization Explorer",  # its name
    "it was ended by hand",  # kept with the run, never shown
    "warm-up",
    "first token",
    "not proven",  # of results: from_below says them
    "not checked",
    "beside all others",
    "beside another",
    "main effect",
    "less together",
    "outside tolerance",
    "out of memory",
    "no difference shown",
    "888.8 MiB",
    "stored runs",  # a thread
    "NVIDIA GeForce RTX 4090",  # as wide as any to come
    "+ precision bf16 + attention sdpa + gelu triton",
    "+ precision bf16 + attention sdpa + …",
}


# ---- what comes from below


def test_that_finished_english_is_found_with_its_values_in_it() -> None:
    language.use("zh_CN")
    assert from_below("Try batch 4.") == "请试批量 4。"
    assert from_below("memory is not told apart by process: triton is not installed") == (
        "内存无法按进程区分：未安装 triton"
    ), "values are translated, too"
    assert from_below("nobody has translated this") == "nobody has translated this"
    assert tr("{count} runs", count=3) == "3 个运行"
    assert (without_mnemonic(tr("S&top")), without_mnemonic("S&top")) == ("停止", "Stop")
    language.use("en")
    assert from_below("triton is not installed") == "triton is not installed"


def test_that_a_run_that_goes_on_from_before_a_change_says_why_in_chinese() -> None:
    language.use("zh_CN")
    change = "At the change compile off -> model: "
    told = (
        (f"{change}The worker was ended", "更改 compile off -> model 时：工作进程被结束"),
        (f"{change}The run failed", "更改 compile off -> model 时：运行失败"),
        (ENDED_BY_HAND, "由人手动结束"),
        ("writing the run's state to a file", "正在把运行状态写入文件"),
    )
    for words, said in told:
        assert from_below(words) == said


def test_that_mistakes_as_they_are_raised_are_told_in_chinese(tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no bundle")
    mistakes: tuple[Callable[[], object], ...] = (
        lambda: by_name("speed"),
        lambda: by_name("gelu").level("fast"),
        lambda: RunConfig(batch=0),
        lambda: RunConfig(workload="sleep"),  # type: ignore[arg-type]
        lambda: environment(CPU).device("cuda:9"),
        lambda: check_target(tmp_path),
        lambda: check_target(tmp_path / "no" / "file.csv"),
        lambda: read_bundle(tmp_path / "no.zip"),
        lambda: read_runs(tmp_path / "no.zip", toggles={}),
        lambda: Store(tmp_path / "runs.sqlite").load(7),
        lambda: lab_cases(CPU, quick=True, only=["relu"]),
        lambda: script(RunConfig(workload="generate", levels=(("decoder", "triton"),))),
        lambda: report([], [], toggles={}),
    )
    language.use("zh_CN")
    for mistake in mistakes:
        with pytest.raises(ValueError) as caught:
            mistake()
        said = from_below(str(caught.value))
        assert any("一" <= c <= "鿿" for c in said), said


def test_that_reasons_why_a_toggle_cannot_run_are_told_in_chinese() -> None:
    language.use("zh_CN")
    old = dataclasses.replace(GPU, capability=(6, 1), bf16=False, triton_problem="triton is not installed")
    reasons = {
        o.unavailable(level.id, device) for o in OPTIMIZATIONS for level in o.levels[1:] for device in (CPU, GPU, old)
    } - {None}
    assert len(reasons) > 5
    missing = [reason for reason in reasons if reason and from_below(reason) == reason]
    assert not missing, "\n".join(sorted(missing))


# ---- the window


def words_of(window: MainWindow) -> dict[str, list[str]]:
    """All that stands in the window, its tooltips and its names for a screen reader, by kind of widget."""
    found: dict[str, list[str]] = {}

    def add(kind: str, words: str) -> None:
        if words:
            found.setdefault(kind, []).append(words)

    for widget in window.findChildren(QWidget):
        if widget.objectName().startswith(("qt_", "Scroll")):
            continue  # Qt's own, named in the language in which they were made
        kind = f"{type(widget).__name__} {widget.objectName()}"
        add(f"{kind} tip", widget.toolTip())
        add(f"{kind} name", widget.accessibleName())
        match widget:
            case QLabel() | QAbstractButton():
                add(kind, widget.text())
            case QComboBox():
                add(kind, " | ".join(widget.itemText(i) for i in range(widget.count())))
            case QMenu():
                add(kind, widget.title())
            case QDockWidget():
                add(kind, widget.windowTitle())
            case QTabBar():
                add(kind, " | ".join(widget.tabText(i) for i in range(widget.count())))
            case QTableView() if widget.model() is not None:
                model = widget.model()
                columns = range(model.columnCount())
                titles = [str(model.headerData(c, Qt.Orientation.Horizontal)) for c in columns]
                cells = [str(model.index(r, c).data()) for r in range(model.rowCount()) for c in columns]
                add(kind, " | ".join([*titles, *cells]))
    for action in window.findChildren(QAction):
        add(f"action {action.objectName()}", action.text())
    return {kind: sorted(words) for kind, words in found.items()}


def differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        kind: sorted(set(one.get(kind, [])) ^ set(other.get(kind, [])))
        for kind in one.keys() | other.keys()
        if one.get(kind) != other.get(kind)
    }


def trained(bench: Bench) -> None:
    """A run with a row in the table, ended."""
    start = bench.start()
    bench.say(steps(start.run_id, 0, 30))
    bench.end(start)
    table = bench.find(QTableView, "runs_table").model()
    state = table.columnCount() - 1
    bench.until(lambda: table.index(0, 5).data() == "30" and table.index(0, state).data() in ("stopped", "已停止"))


@pytest.mark.usefixtures("fonts")
def test_that_a_window_that_changes_its_language_says_what_one_opened_in_it_says(bench: Bench) -> None:
    window = bench.open()
    trained(bench)
    window.messages.clear()
    bench.until(lambda: not window.panels.plots.redraw_timer.isActive())
    english = words_of(window)
    bench.find(QAction, "language_zh_CN_action").trigger()
    window.messages.clear()
    bench.until(lambda: not window.panels.plots.redraw_timer.isActive())
    switched = words_of(window)
    assert bench.find(QAction, "start_action").text() == "开始(&S)"
    bench.find(QAction, "language_en_action").trigger()
    window.messages.clear()
    bench.until(lambda: not window.panels.plots.redraw_timer.isActive())
    assert differences(words_of(window), english) == {}, "and back"
    bench.find(QAction, "language_zh_CN_action").trigger()
    window.close()

    window = bench.open()
    assert bench.find(QAction, "start_action").text() == "开始(&S)", "it is remembered"
    trained(bench)
    window.messages.clear()
    bench.until(lambda: not window.panels.plots.redraw_timer.isActive())
    assert differences(words_of(window), switched) == {}


@pytest.mark.usefixtures("fonts")
def test_that_a_run_goes_on_while_the_language_changes(bench: Bench) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.find(QAction, "language_zh_CN_action").trigger()
    bench.say(steps(start.run_id, 5, 5))
    assert len(window.log.run(start.run_id).columns) == 10
    assert len(bench.worker.commands) == 1, "the worker hears nothing of it"
    problem = Problem(what="Out of memory", why="the device has not one byte left")
    bench.say(RunEnded(run_id=start.run_id, outcome="failed", problem=problem))
    assert window.messages.text == "显存不足: 设备已无一字节可用."


def test_that_a_machine_without_a_chinese_font_says_what_to_install(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PySide6.QtGui.QFontDatabase.families", lambda *_: [])
    window = bench.open()
    bench.find(QAction, "language_zh_CN_action").trigger()
    assert "apt-get install -y fonts-wqy-microhei" in window.messages.text
    assert bench.find(QAction, "start_action").text() == "&Start"
    assert not bench.find(QAction, "language_zh_CN_action").isChecked()
    assert language.language() == "en"


@pytest.mark.usefixtures("fonts")
def test_that_no_english_is_left_in_a_chinese_window(bench: Bench) -> None:
    bench.here = environment(GPU, CPU)
    window = bench.open()
    bench.find(QAction, "language_zh_CN_action").trigger()
    trained(bench)
    left = []
    for kind, all_words in words_of(window).items():
        for words in all_words:
            ascii_words = [w for w in words.split() if w.isascii() and w.isalpha() and w.islower() and len(w) > 2]
            if len(ascii_words) > 3 and not any("一" <= c <= "鿿" for c in words):
                left.append(f"{kind}: {words[:120]}")
    assert not left, "\n".join(left)


def test_that_an_open_window_of_help_follows_the_language(bench: Bench, fonts: None) -> None:
    window = bench.open()
    for name, title, words in (
        ("measured_action", "How is this measured?", "How is this measured?"),
        ("environment_action", "This machine", "Devices"),
    ):
        bench.find(QAction, name).trigger()
        shown = bench.find(TextWindow, "help_window")
        text = bench.find(QTextBrowser, "help_text")
        assert words in text.toPlainText()
        window.set_language("zh_CN")
        assert shown.windowTitle() == CHINESE[title]
        assert CHINESE[words] in text.toPlainText()
        window.set_language("en")
        assert words in text.toPlainText()
        shown.close()
        bench.until(lambda: not window.findChildren(TextWindow))
