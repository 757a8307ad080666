"""``python main.py tour``: the window used as a person uses it, by its own controls, with pictures and CSV.

It trains, flips attention, precision and the batch while the run goes, stops, then generates text. The pictures
in the README come from it, and it shows on a new machine that the whole window works.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtWidgets import QApplication, QPlainTextEdit, QSpinBox

from explorer.arguments import above_zero, folder
from explorer.gui.app import create
from explorer.gui.hands import choose, press, the
from explorer.gui.loop import wait, wait_until
from explorer.gui.main_window import MainWindow
from explorer.optimizations.registry import baseline_levels
from explorer.results import export


def main(argv: Sequence[str]) -> int:
    """Do the tour and return the exit status: 0, or 1 where something did not work.

    Raises:
        ValueError: the request was wrong.
    """
    args = _parser().parse_args(argv)
    above_zero("--seconds", args.seconds)
    folder("--out", args.out)
    with tempfile.TemporaryDirectory() as scratch:
        _, window = create(["main.py", "--no-store", "--settings", str(Path(scratch) / "settings.ini")])
        try:
            window.set_theme(args.theme)
            window.resize(*args.size)
            _tour(window, args)
        except RuntimeError as error:
            _picture(window, args.out / "failed.png")
            sys.stderr.write(f"error: {error}\n")
            return 1
        finally:
            window.close()
            QApplication.processEvents()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="main.py tour", description="Use the window by script; save pictures and CSV."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=6.0, help="time at each setting")
    parser.add_argument("--model", help="instead of the window's default")
    parser.add_argument("--theme", choices=("light", "dark"), default="dark")
    parser.add_argument("--size", type=_size, default="1440x900", metavar="WIDTHxHEIGHT")
    return parser


def _size(text: str) -> tuple[int, int]:
    """Width and height in pixels.

    Raises:
        argparse.ArgumentTypeError: something else.
    """
    found = re.fullmatch(r"([1-9]\d{1,4})x([1-9]\d{1,4})", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give a size such as 1440x900")
    return int(found[1]), int(found[2])


def _tour(window: MainWindow, args: argparse.Namespace) -> None:
    wait_until(lambda: window.bridge.state == "ready", window)
    wait(300)
    if args.model:
        window.intent.change(model=args.model)
    _picture(window, args.out / "1-start.png")
    choose(window, "workload_combo", "train")
    press(window, "start_button")
    _steps(window, args.seconds, segments=1)
    _picture(window, args.out / "2-baseline.png")
    cuda = window.intent.config.device != "cpu" and window.log.runs[-1].segments[-1].config.device != "cpu"
    choose(window, "toggle_attention", "sdpa")
    _steps(window, args.seconds, segments=2)
    choose(window, "toggle_precision", "bf16")
    _steps(window, args.seconds, segments=3)
    choose(window, "toggle_gelu", "triton" if cuda else "torch")
    _steps(window, args.seconds, segments=4)
    batch = the(window, QSpinBox, "batch_spin")
    batch.setValue(batch.value() * 2)
    _steps(window, args.seconds, segments=5)
    choose(window, "toggle_checkpointing", "all")
    _steps(window, args.seconds, segments=6)
    _picture(window, args.out / "3-trained.png")
    press(window, "stop_button")
    wait_until(lambda: not window.bridge.going, window)
    choose(window, "workload_combo", "generate")
    batch.setValue(1)
    press(window, "start_button")
    wait_until(lambda: not window.bridge.going, window)
    wait(500)
    if not the(window, QPlainTextEdit, "text_output").toPlainText().strip():
        raise RuntimeError("generation showed no text")
    _picture(window, args.out / "4-generated.png")
    export.write_segments(args.out / "runs.csv", window.log.runs, toggles=baseline_levels())
    export.write_samples(args.out / "steps.csv", window.log.runs)


def _steps(window: MainWindow, least_s: float, *, segments: int) -> None:
    """Stay at a setting: at least ``least_s``, and until twelve of its steps have been seen."""
    record = window.log.runs[-1]

    def seen() -> bool:
        if len(record.segments) < segments:
            return False
        rows = record.columns.rows_of(record.segments[-1].segment.index)
        return bool(rows.stop - rows.start >= 12)

    wait_until(seen, window, least_s=least_s)
    if len(record.segments) > segments:
        raise RuntimeError(f"{len(record.segments)} segments where {segments} were expected")


def _picture(window: MainWindow, path: Path) -> None:
    wait(300)
    if not window.grab().save(str(path)):
        raise RuntimeError(f"the picture could not be written to {path}")
