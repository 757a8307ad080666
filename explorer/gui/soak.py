"""``python main.py soak``: the window trains while a toggle is flipped again and again. Does all of it last?

Told at the end: the memory of window and worker (flat within 2% at each setting), steps that never came to the window
or to the file (none), and the window's tick gaps (99 in 100 below 50 ms).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication

from explorer.arguments import above_zero
from explorer.gui import hands
from explorer.gui.app import create
from explorer.gui.loop import wait, wait_until
from explorer.gui.main_window import MainWindow
from explorer.optimizations.registry import by_name, levels_of
from explorer.results.atomic import check_target, replaced
from explorer.results.export import text_writer
from explorer.results.ring import PHASE_CODES
from explorer.results.steadiness import as_row, growth
from explorer.results.store import Store

TICK_MS = 10
READ_EVERY_S = 1.0
FLAT_WITHIN = 0.02
GAP_UNDER_MS = 50.0
MEMORY = ("window_bytes", "worker_bytes", "peak_allocated_bytes", "reserved_bytes")
"""Resident memory of both processes, and what the worker holds of a GPU: none on the CPU."""

Flip = tuple[str, tuple[str, str]]
"""A toggle's name, and the two levels that it goes between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was held at a moment. -1: not measured."""

    time_s: float
    setting: str
    """The levels of the toggles that are flipped."""
    steps: int
    window_bytes: int
    worker_bytes: int
    peak_allocated_bytes: int
    reserved_bytes: int


@dataclass(slots=True)
class Soaked:
    """What was seen."""

    readings: list[Reading] = field(default_factory=list)
    gaps_ms: array[float] = field(default_factory=lambda: array("d"))
    flips: int = 0
    segments: int = 0
    steps: int = 0
    """Of the last step that came, counted from one."""
    arrived: int = 0
    """Steps that the window has."""
    stored: int = 0
    """Steps that the file has."""


class Ticks:
    """Counts how late a timer of the window comes while it draws."""

    def __init__(self, gaps_ms: array[float], parent: MainWindow) -> None:
        self._gaps_ms = gaps_ms
        self._last_s = time.perf_counter()
        self._timer = QTimer(parent)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def _tick(self) -> None:
        now_s = time.perf_counter()
        self._gaps_ms.append((now_s - self._last_s) * 1e3)
        self._last_s = now_s


def main(argv: Sequence[str]) -> int:
    """Soak, print what held and return the exit status: 0 all held, 1 something did not, 2 a wrong request."""
    args = _parser().parse_args(argv)
    soaked = Soaked()
    try:
        flips = [_flip(setting) for setting in args.flip or ["attention=sdpa"]]
        above_zero("--minutes", args.minutes)
        above_zero("--flip-every", args.flip_every)
        if args.csv is not None:
            check_target(args.csv)
        with tempfile.TemporaryDirectory() as folder:
            interrupted = _soak(soaked, args, flips, Path(folder))
        if args.csv is not None:
            _write_csv(args.csv, soaked.readings)
    except (ValueError, RuntimeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ValueError) else 1
    row, held = result(soaked)
    sys.stdout.write((json.dumps(row, indent=2) if args.json else "\n".join(in_words(row))) + "\n")
    return 130 if interrupted else 0 if held else 1


def result(soaked: Soaked) -> tuple[Mapping[str, float | str | None], bool]:
    """What it came to, a cell a figure, and whether all of it held."""
    found = {name: growth((r.setting, float(getattr(r, name))) for r in soaked.readings) for name in MEMORY}
    p50, p99, most = np.quantile(soaked.gaps_ms, (0.5, 0.99, 1.0)) if len(soaked.gaps_ms) else (0.0, 0.0, 0.0)
    row: dict[str, float | str | None] = {
        "seconds": soaked.readings[-1].time_s if soaked.readings else 0.0,
        "flips": soaked.flips,
        "flips_missed": soaked.flips + 1 - soaked.segments,
        "steps": soaked.steps,
        "steps_missed": soaked.steps - soaked.arrived,
        "steps_not_stored": soaked.steps - soaked.stored,
        "tick_gap_ms_p50": float(p50),
        "tick_gap_ms_p99": float(p99),
        "tick_gap_ms_max": float(most),
    }
    for name in MEMORY:
        row |= as_row(name, found[name])
    flat = all(grown is None or grown.share <= FLAT_WITHIN for grown in found.values())
    missed = any(row[name] for name in ("flips_missed", "steps_missed", "steps_not_stored"))
    return row, flat and not missed and float(p99) < GAP_UNDER_MS


def in_words(row: Mapping[str, float | str | None]) -> list[str]:
    """The result, a line a figure."""
    lines = [
        f"{row['seconds']:.0f} s, {row['flips']} flips, {row['flips_missed']} of them not seen",
        f"{row['steps']:,} steps: {row['steps_missed']} missed by the window, {row['steps_not_stored']} by the file",
        f"tick gap: p50 {row['tick_gap_ms_p50']:.1f}, p99 {row['tick_gap_ms_p99']:.1f}, most "
        f"{row['tick_gap_ms_max']:.1f} ms (asked for: p99 under {GAP_UNDER_MS:.0f})",
    ]
    for name in MEMORY:
        first, last, share = (row[f"{name}_{end}"] for end in ("first", "last", "growth"))
        if isinstance(first, float) and isinstance(last, float) and isinstance(share, float):
            lines.append(
                f"{name.removesuffix('_bytes').replace('_', ' ')}: {first / 2**20:,.1f} -> {last / 2**20:,.1f} MiB, "
                f"{share:+.2%} at {row[f'{name}_at']} (asked for: at most {FLAT_WITHIN:+.0%})"
            )
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="main.py soak", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=9.0, help="how long (default 9; an hour: 60)")
    parser.add_argument("--flip-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument(
        "--flip", action="append", metavar="TOGGLE=LEVEL", help="on and off again (default attention=sdpa); repeat"
    )
    parser.add_argument("--model", help="instead of the window's default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write one row a second")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _flip(setting: str) -> Flip:
    name, _, level = setting.partition("=")
    known = by_name(name)
    return name, (known.levels[0].id, known.level(level).id)


def _soak(soaked: Soaked, args: argparse.Namespace, flips: Sequence[Flip], folder: Path) -> bool:
    """Do it; returns whether Ctrl-C ended it. Runs are kept as in ordinary use, so that this is part of it.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first flip.
        ValueError: a setting that is not allowed.
        RuntimeError: the run failed; the message says how.
    """
    store = folder / "runs.sqlite"
    _, window = create(["main.py", "--settings", str(folder / "settings.ini"), "--store", str(store)])
    try:
        wait_until(lambda: window.bridge.state == "ready", window)
        asked = {name: getattr(args, name) for name in ("model", "batch", "seq") if getattr(args, name) is not None}
        window.intent.change(device=args.device, **asked)
        hands.choose(window, "workload_combo", "train")
        hands.press(window, "start_button")
        if not window.bridge.going:
            raise ValueError(window.messages.text)
        wait_until(lambda: _steady(window), window)
        ticks = Ticks(soaked.gaps_ms, window)
        interrupted = True
        with contextlib.suppress(KeyboardInterrupt):
            _keep_flipping(soaked, args, flips, window)
            interrupted = False
        ticks.stop()
        hands.press(window, "stop_button")
        wait_until(lambda: not window.bridge.going, window)
    finally:
        window.close()
        QApplication.processEvents()
    record = window.log.runs[-1]
    steps = record.columns.column("step")
    soaked.segments, soaked.steps = len(record.segments), int(steps[-1]) + 1
    # Those that the window has let go of after a million came to it as well.
    soaked.arrived = record.columns.dropped + len(np.unique(steps))
    with Store(store, read_only=True) as kept:
        (line,) = kept.runs().runs
        soaked.stored = line.samples
    return interrupted


def _steady(window: MainWindow) -> bool:
    columns = window.log.runs[-1].columns
    return bool(len(columns) and columns.column("phase")[-1] == PHASE_CODES["steady"])


def _keep_flipping(soaked: Soaked, args: argparse.Namespace, flips: Sequence[Flip], window: MainWindow) -> None:
    began_s = time.monotonic()
    end_s = began_s + args.minutes * 60
    levels = dict.fromkeys((name for name, _ in flips), 0)
    record = window.log.runs[-1]
    for name, ends in itertools.cycle(flips):
        levels[name] = 1 - levels[name]
        hands.choose(window, f"toggle_{name}", ends[levels[name]])
        soaked.flips += 1
        next_s = time.monotonic() + args.flip_every
        while time.monotonic() < next_s:
            wait(round(min(READ_EVERY_S, max(next_s - time.monotonic(), 0.001)) * 1e3))
            soaked.readings.append(_reading(window, [name for name, _ in flips], time.monotonic() - began_s))
        # A step that is longer than the time between two flips must not swallow one.
        wait_until(lambda: len(record.segments) > soaked.flips, window)
        if time.monotonic() >= end_s:
            return


def _reading(window: MainWindow, names: Sequence[str], time_s: float) -> Reading:
    record = window.log.runs[-1]
    levels = levels_of(record.segments[-1].config)
    (worker,) = multiprocessing.active_children()
    assert worker.pid is not None
    columns = record.columns
    return Reading(
        time_s=time_s,
        setting=" ".join(f"{name}={levels[name]}" for name in names),
        steps=columns.dropped + len(columns),
        window_bytes=_resident_bytes(os.getpid()),
        worker_bytes=_resident_bytes(worker.pid),
        peak_allocated_bytes=int(columns.column("peak_allocated_bytes")[-1]),
        reserved_bytes=int(columns.column("reserved_bytes")[-1]),
    )


def _resident_bytes(process_id: int) -> int:
    """Source: proc(5), statm, second field. -1 where there is no /proc."""
    try:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except FileNotFoundError:
        return -1
    return pages * os.sysconf("SC_PAGE_SIZE")


def _write_csv(path: Path, readings: Sequence[Reading]) -> None:
    with replaced(path) as file, text_writer(file) as text:
        writer = csv.writer(text)
        writer.writerow([column.name for column in dataclasses.fields(Reading)])
        writer.writerows(dataclasses.astuple(reading) for reading in readings)
