"""Colours that can be read, and the controls that take a name or a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from explorer.gui import theme
from explorer.gui.message_bar import HEIGHT_PX, MessageBar
from explorer.gui.path_combo import PathCombo


def contrast(one: QColor, other: QColor) -> float:
    """WCAG 2.2's contrast ratio, written out here again as the reference."""

    def channel(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    light, dark = sorted(
        (0.2126 * channel(c.redF()) + 0.7152 * channel(c.greenF()) + 0.0722 * channel(c.blueF()) for c in (one, other)),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_that_all_text_can_be_read_in_both_themes(qapp: QApplication, dark: bool) -> None:
    colours, role = theme.palette(dark=dark), QPalette.ColorRole
    more, look = theme.ACCENTS[dark], theme.theme(dark)
    behind = [colours.color(r) for r in (role.Window, role.Base, role.AlternateBase, role.Button)]
    texts = [colours.color(r) for r in (role.WindowText, role.Text, role.ButtonText, role.PlaceholderText, role.Link)]
    texts += [QColor(c) for c in (more.go, more.warning, look.problem, look.muted)]
    for text in texts:
        for background in behind:
            assert contrast(text, background) >= 4.5, (text.name(), background.name())
    assert contrast(colours.color(role.HighlightedText), colours.color(role.Highlight)) >= 4.5


@pytest.fixture
def combo(qtbot: QtBot) -> PathCombo:
    combo = PathCombo((("small", "tip"), ("small-er", "tip")), "Open folder…", folder=True)
    combo.show_value("small")
    qtbot.addWidget(combo)
    return combo


def test_that_a_typed_path_is_chosen_once_typing_is_done(combo: PathCombo, qtbot: QtBot) -> None:
    heard: list[str] = []
    combo.chosen.connect(heard.append)
    line = combo.lineEdit()
    line.selectAll()
    qtbot.keyClicks(line, "/nowhere/model")
    assert heard == []
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert heard == ["/nowhere/model"]


def test_that_text_set_by_a_program_is_chosen_when_it_names_something(combo: PathCombo, tmp_path: Path) -> None:
    heard: list[str] = []
    combo.chosen.connect(heard.append)
    combo.setCurrentText("small-er")
    combo.setCurrentText("smal")
    combo.setCurrentText(str(tmp_path))
    assert heard == ["small-er"], "a folder without a model is not one yet"
    (tmp_path / "config.json").write_text("{}")
    combo.setCurrentText("")
    combo.setCurrentText(str(tmp_path))
    assert heard == ["small-er", str(tmp_path)]


def test_that_an_emptied_line_goes_back(combo: PathCombo, qtbot: QtBot) -> None:
    line = combo.lineEdit()
    line.clear()
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert combo.currentText() == "small"


@pytest.mark.parametrize("picked", ["", "/some/model"])
def test_that_open_folder_asks_and_takes_the_answer(
    combo: PathCombo, monkeypatch: pytest.MonkeyPatch, picked: str
) -> None:
    heard: list[str] = []
    combo.chosen.connect(heard.append)
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_args: picked)
    combo.setCurrentIndex(combo.findText("Open folder…"))
    assert heard == ([picked] if picked else [])
    if not picked:
        assert combo.currentText() == "small", "a cancelled dialog changes nothing"


def test_that_a_long_message_is_cut_to_its_line_and_kept_in_the_tooltip(qtbot: QtBot) -> None:
    bar = MessageBar()
    qtbot.addWidget(bar)
    bar.resize(400, HEIGHT_PX)
    bar.show()
    words = "one line too long for this bar " * 20
    bar.show_message(words, severity="problem")
    label = bar.findChild(object, "message_label")
    assert label.text().endswith("…")
    assert label.fontMetrics().horizontalAdvance(label.text()) <= label.width()
    assert label.toolTip() == words
    assert bar.height() == HEIGHT_PX
    bar.resize(20000, HEIGHT_PX)
    QApplication.processEvents()
    assert label.text() == words.strip()


@pytest.mark.parametrize("dark", [True, False])
def test_that_dressing_the_application_again_restyles_nothing(qtbot: QtBot, qapp: QApplication, dark: bool) -> None:
    class Watched(QWidget):
        restyled = 0

        def changeEvent(self, event: QEvent) -> None:  # Qt's name
            if event.type() == QEvent.Type.StyleChange:
                self.restyled += 1

    theme.apply(qapp, dark=not dark)
    widget = Watched()
    qtbot.addWidget(widget)
    widget.ensurePolished()  # Qt tells only widgets that have a style already
    theme.apply(qapp, dark=dark)
    assert widget.restyled, "another theme reaches a widget that exists"
    before = widget.restyled
    theme.apply(qapp, dark=dark)
    assert widget.restyled == before
