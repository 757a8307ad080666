"""Opens the window. Imports no torch: that is the worker's, in its own process."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from explorer.gui import speech
from explorer.gui.main_window import MainWindow
from explorer.gui.settings import Settings
from explorer.gui.slot_errors import SlotErrors
from explorer.results.database import default_path


def create(argv: Sequence[str] = ()) -> tuple[QApplication, MainWindow]:
    """The application and its window, shown; the event loop is not entered.

    An application that exists already is used. The worker starts when the loop first runs.

    Args:
        argv: the window's options; a program's name before them is skipped.
    """
    options = _parser().parse_args([arg for i, arg in enumerate(argv) if i or arg.startswith("-")])
    app = QApplication.instance() or QApplication(["gpt2-explorer"])
    assert isinstance(app, QApplication)
    app.setApplicationDisplayName("GPT-2 Optimization Explorer")
    settings = Settings(options.settings)
    wanted = speech.spoken(settings.language())
    lacking = speech.missing_font(wanted)
    speech.speak(app, wanted if lacking is None else "en")
    window = MainWindow(
        settings,
        store=None if options.no_store else options.store or default_path(),
        in_process=options.in_process,
        cuda_expected=_cuda_expected(),
    )
    if lacking is not None:
        window.messages.show_message(lacking, severity="warning")
    window.show()
    QTimer.singleShot(0, window, window.open_worker)
    return app, window


def main(argv: Sequence[str]) -> int:
    """Open the window and return the exit status when it is closed."""
    app, window = create(argv)
    # Python runs this handler at the next tick of one of the window's timers.
    signal.signal(signal.SIGINT, lambda *_: window.close())
    with SlotErrors(window.messages).caught():
        return app.exec()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="main.py", description="Opens the window (the command line: main.py --help)")
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="keep the worker on a thread of the window's process (it then loses speed to the window)",
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="remember settings in this file")
    parser.add_argument("--store", type=Path, metavar="FILE", help=f"keep runs in this file (default {default_path()})")
    parser.add_argument("--no-store", action="store_true", help="do not keep runs")
    return parser


def _cuda_expected() -> bool:
    """A guess that costs nothing, for the first defaults; the worker knows better a few seconds later."""
    return sys.platform == "linux" and Path("/proc/driver/nvidia/version").exists()
