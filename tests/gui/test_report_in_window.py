"""The report from the File menu, in the window's language, and its pictures drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QAction, QColor, QImage, QPainter, QTextDocument
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication, QFileDialog
from window_bench import Bench, steps

from explorer.gui import speech
from explorer.gui.language import catalogue
from explorer.optimizations.registry import baseline_levels
from explorer.results.report import report
from explorer.results.svg import COLOURS


def answer(patch: pytest.MonkeyPatch, path: Path) -> None:
    patch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(path), ""))


def test_that_the_menu_writes_a_report_whose_words_and_curves_can_be_seen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    window = bench.open()
    path = tmp_path / "out.html"
    answer(monkeypatch, path)
    bench.find(QAction, "export_report_action").trigger()
    assert "nothing to export yet" in window.messages.text
    start = bench.start()
    bench.say(steps(start.run_id, 0, 60))
    bench.end(start)
    bench.find(QAction, "export_report_action").trigger()
    text = path.read_text("utf-8")
    document = QTextDocument()
    document.setHtml(text)
    shown = document.toPlainText()
    for words in ("Results", "2,000", "Configurations", "Small CPU", "How is this measured?"):
        assert words in shown
    pictures = re.findall(r'<svg [^>]*viewBox="0 0 720 240".*?</svg>', text, re.DOTALL)
    assert len(pictures) == 3, "throughput, loss, step time: this worker told no memory"
    for picture in pictures:
        renderer = QSvgRenderer(QByteArray(picture.encode()))
        assert renderer.isValid()
        image = QImage(720, 240, QImage.Format.Format_RGB32)
        image.fill(QColor("white"))
        painter = QPainter(image)
        renderer.render(painter)
        painter.end()
        drawn = [image.pixelColor(x, y) for x in range(70, 700, 2) for y in range(5, 210)]
        near = [c for c in drawn if abs(c.hue() - QColor(COLOURS[0]).hue()) < 8 and c.saturation() > 60]
        assert len(near) > 50, "the curve"


def test_that_a_chinese_window_writes_a_chinese_report(
    bench: Bench, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speech, "missing_font", lambda wanted: None)
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 5))
    bench.end(start)
    said: list[str] = []

    def say(words: str, **values: object) -> str:
        said.append(words)
        return words.format(**values)

    report(window.log.runs, [], toggles=baseline_levels(), say=say)
    assert len(said) > 30
    assert not set(said) - catalogue("zh_CN").keys()
    bench.find(QAction, "language_zh_CN_action").trigger()
    answer(monkeypatch, tmp_path / "out.html")
    bench.find(QAction, "export_report_action").trigger()
    text = (tmp_path / "out.html").read_text("utf-8")
    assert '<html lang="zh-CN">' in text
    assert "<h2>配置</h2>" in text
    speech.speak(qapp, "en")
