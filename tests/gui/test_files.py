"""Settings as TOML, and pictures of the views."""

from __future__ import annotations

import dataclasses
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtGui import QAction, QImage
from PySide6.QtWidgets import QFileDialog
from window_bench import Bench, steps

from explorer.config import RunConfig
from explorer.gui.config_file import from_toml, to_toml

ODD = dataclasses.replace(
    RunConfig(batch=3, lr=3e-5, prompt='déjà "x"\\\n\t\x7f 字', levels=(("attention", "sdpa"), ("precision", "bf16"))),
    model="/some where/model",
)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the person wants every file: a folder whose files the test names."""
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(tmp_path / names.pop(0)), ""))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_args: (str(tmp_path / names.pop(0)), ""))
    return tmp_path


names: list[str] = []


def test_that_settings_come_back_from_toml_as_they_were() -> None:
    assert from_toml(to_toml(ODD)) == ODD
    read = tomllib.loads(to_toml(ODD))
    assert (read["batch"], read["prompt"], read["levels"]) == (
        3,
        ODD.prompt,
        {"attention": "sdpa", "precision": "bf16"},
    )
    assert from_toml("batch = 2\n") == RunConfig(batch=2), "what is left out is as by default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch = 0", "batch"),
        ("batsch = 2", "batsch"),
        ("[levels]\nattention = 'fast'", "fast"),
        ("[levels]\nnothing = 'on'", "nothing"),
        ("levels = 3", "levels"),
        ("batch = [", "alue"),
    ],
)
def test_that_a_file_with_a_wrong_setting_is_refused_with_its_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_toml(text)


def test_that_settings_are_saved_and_opened_and_that_can_be_undone(bench: Bench, target: Path) -> None:
    window = bench.open()
    names[:] = ["a.toml", "a.toml", "b.toml"]
    bench.choose("toggle_attention", "sdpa")
    saved = bench.config
    bench.find(QAction, "save_settings_action").trigger()
    bench.choose("toggle_attention", "naive")
    other = bench.config
    bench.find(QAction, "open_settings_action").trigger()
    assert bench.config == saved
    bench.find(QAction, "undo_action").trigger()
    assert bench.config == other
    (target / "b.toml").write_text("batch = 0\n")
    bench.find(QAction, "open_settings_action").trigger()
    assert window.messages.text.startswith("Not opened: batch")
    assert bench.config == other


def test_that_a_view_is_saved_as_png_and_as_svg(bench: Bench, target: Path) -> None:
    window = bench.open()
    start = bench.start()
    bench.say(steps(start.run_id, 0, 30))
    bench.end(start)
    window.panels.plots.redraw()
    names[:] = ["view.png", "view.svg", "view.gif"]
    for _ in range(3):
        bench.find(QAction, "save_picture_action").trigger()
    assert "neither in .png nor in .svg" in window.messages.text
    image = QImage(str(target / "view.png"))
    assert (image.width(), image.height()) == tuple(2 * n for n in window.panels.plots.size().toTuple())
    colours = {image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
    assert len(colours) > 4, "it is no empty field"
    root = ET.parse(target / "view.svg").getroot()
    texts = "".join(root.itertext())
    assert "THROUGHPUT" in texts
    assert "0.5 s" in texts, "axes are letters, too"
    assert sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}polyline")) + sum(
        1 for _ in root.iter("{http://www.w3.org/2000/svg}path")
    ), "curves are lines"
