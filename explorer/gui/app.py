"""Makes the window. Imports no torch: that is the worker's, in its own process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from explorer.gui import options, speech
from explorer.gui.bridge import EarlyWorker
from explorer.gui.main_window import MainWindow
from explorer.gui.settings import Settings
from explorer.results.database import default_path


def create(argv: Sequence[str] = (), worker: EarlyWorker | None = None) -> tuple[QApplication, MainWindow]:
    """The application and its window, shown; the event loop is not entered.

    An application that exists already is used. A worker starts when the loop first runs.

    Args:
        argv: the window's options; a program's name before them is skipped.
        worker: one that has been started already, for this window.
    """
    asked = options.read(argv)
    app = QApplication.instance() or QApplication(["gpt2-explorer"])
    assert isinstance(app, QApplication)
    app.setApplicationDisplayName("GPT-2 Optimization Explorer")
    settings = Settings(asked.settings)
    wanted = speech.spoken(settings.language())
    lacking = speech.missing_font(wanted)
    speech.speak(app, wanted if lacking is None else "en")
    window = MainWindow(
        settings,
        store=None if asked.no_store else asked.store or default_path(),
        in_process=asked.in_process,
        cuda_expected=_cuda_expected(),
        worker=worker,
    )
    if lacking is not None:
        window.messages.show_message(lacking, severity="warning")
    window.show()
    QTimer.singleShot(0, window, window.open_worker)
    return app, window


def _cuda_expected() -> bool:
    """A guess that costs nothing, for the first defaults; the worker knows better a few seconds later."""
    return sys.platform == "linux" and Path("/proc/driver/nvidia/version").exists()
