"""A whole window with its worker, in a process of its own, to be done away with. Imported by these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from explorer.config import RunConfig

ROOT = Path(__file__).parents[2]
KEPT_AFTER_S = 1.0
"""A store loses at most the last second."""
WINDOW = """
import json, multiprocessing, sys
from PySide6.QtCore import QTimer
from explorer.config import RunConfig
from explorer.gui.app import create
if __name__ == "__main__":
    app, window = create(["main.py", "--settings", sys.argv[1], "--store", sys.argv[2]])
    window.intent.replace(RunConfig.from_dict(json.loads(sys.argv[3])))
    timer = QTimer()
    def look():
        if window.bridge.state == "ready" and not window.log.runs:
            window.control.start()
        elif window.log.runs and len(window.log.runs[0].columns) > int(sys.argv[4]):
            timer.stop()
            seen = len(window.log.runs[0].columns)
            ready = lambda: print(multiprocessing.active_children()[0].pid, seen, flush=True)
            QTimer.singleShot(int(sys.argv[5]), ready)
    timer.timeout.connect(look)
    timer.start(50)
    app.exec()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A window that trains."""

    window: subprocess.Popen[bytes]
    worker_id: int
    steps: int
    """Seen by the window ``KEPT_AFTER_S`` ago."""
    store: Path


@contextmanager
def at_work(
    config: RunConfig, folder: Path, *, steps: int, environ: Mapping[str, str] | None = None
) -> Iterator[AtWork]:
    """A window that has begun ``config`` by itself and seen so many steps of it; killed in the end if it lives."""
    script, store = folder / "window.py", folder / "runs.sqlite"
    script.write_text(WINDOW)
    asked = [str(folder / "s.ini"), str(store), json.dumps(config.to_dict()), str(steps), f"{KEPT_AFTER_S * 1e3:.0f}"]
    command = [sys.executable, str(script), *asked]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    given = {**os.environ, "PYTHONPATH": path, "QT_QPA_PLATFORM": "offscreen"} | dict(environ or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=given) as window:
        try:
            assert window.stdout is not None
            worker_id, seen = map(int, window.stdout.readline().split())
            yield AtWork(window=window, worker_id=worker_id, steps=seen, store=store)
        finally:
            window.kill()
