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
            print(multiprocessing.active_children()[0].pid, flush=True)
    timer.timeout.connect(look)
    timer.start(50)
    app.exec()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A window that trains."""

    window: subprocess.Popen[bytes]
    worker_id: int
    store: Path


@contextmanager
def at_work(
    config: RunConfig, folder: Path, *, steps: int, environ: Mapping[str, str] | None = None
) -> Iterator[AtWork]:
    """A window that has begun ``config`` by itself and seen so many steps of it; killed in the end if it lives."""
    script, store = folder / "window.py", folder / "runs.sqlite"
    script.write_text(WINDOW)
    command = [sys.executable, str(script), str(folder / "s.ini"), str(store), json.dumps(config.to_dict()), str(steps)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    given = {**os.environ, "PYTHONPATH": path, "QT_QPA_PLATFORM": "offscreen"} | dict(environ or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=given) as window:
        try:
            assert window.stdout is not None
            yield AtWork(window=window, worker_id=int(window.stdout.readline()), store=store)
        finally:
            window.kill()
