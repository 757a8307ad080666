"""The exported report as a browser shows it: nothing is mended, blocked or cut, and its curves can be seen."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PySide6.QtGui import QAction, QColor, QImage
from PySide6.QtWidgets import QFileDialog
from window_bench import Bench, steps

from explorer.messages import SegmentStarted
from explorer.results.sample import Segment
from explorer.results.svg import COLOURS

BROWSER = "chromium-headless-shell"
pytestmark = pytest.mark.skipif(shutil.which(BROWSER) is None, reason=f"needs a browser: Debian's {BROWSER}")
SIZE_PX = (1440, 3200)
"""All of the page is in sight."""
ADDED = {"tbody"}
"""What a browser puts into any table that has none."""


class Tags(HTMLParser):
    """The elements of a page, in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ADDED:
            self.found.append(tag)


def browse(page: Path, *what: str) -> tuple[str, list[str]]:
    """What the browser prints of ``page``, and what it has to say of it."""
    # Its sandbox is not to be had for root; the page runs nothing.
    options = ("--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={page.parent / 'user'}")
    done = subprocess.run(
        [BROWSER, *options, f"--window-size={SIZE_PX[0]},{SIZE_PX[1]}", *what, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def bluish(colour: QColor) -> bool:
    """Whether it is the first run's, or that mixed with the page's white, as the edge of a line is."""
    return abs(colour.hue() - QColor(COLOURS[0]).hue()) < 8 and colour.saturation() > 120


def test_that_a_browser_shows_the_exported_report_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.open()
    path = tmp_path / "out.html"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_args: (str(path), ""))
    start = bench.start()
    bench.say(steps(start.run_id, 0, 60))
    changed = Segment(
        index=1, first_step=60, changes=("precision fp32 -> bf16",), started_at="2026-01-01T00:01:00+00:00"
    )
    bench.say(SegmentStarted(run_id=start.run_id, config=start.config.with_level("precision", "bf16"), segment=changed))
    bench.end(start)
    bench.find(QAction, "export_report_action").trigger()

    document, said = browse(path, "--dump-dom")
    assert not said, "nothing is blocked, and nothing asked for"
    assert Tags(document).found == Tags(path.read_text("utf-8")).found, "it had nothing to mend"

    picture = tmp_path / "out.png"
    browse(path, f"--screenshot={picture}")
    shown = QImage(str(picture))
    assert (shown.width(), shown.height()) == SIZE_PX
    columns = range(0, shown.width(), 4)
    lines = [y for y in range(shown.height()) if sum(bluish(shown.pixelColor(x, y)) for x in columns) > 100]
    assert len({y // 100 for y in lines}) == 3, "throughput, loss and step time are level here: a long line each"
    for x in (2, shown.width() - 3):
        edge = {shown.pixelColor(x, y).name() for y in range(shown.height())}
        assert edge == {"#ffffff"}, "no bar to scroll by, and nothing reaches out of the page"
