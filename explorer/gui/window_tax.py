"""Does the window slow down what it measures? ``python main.py window-tax`` finds out, on the window itself.

One run in one live worker; the four plots' redraws (10 a second) are switched on and off in blocks, on-off-off-on.
The figure is the median, over pairs of neighbouring blocks, of the step time with redraws over that without, and its
95% interval. Short blocks and ratios by pair, because small batches are bound by the host, and a virtual machine's
processor can change its speed by a third for seconds at a time: that hits both blocks of nearly every pair alike.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PySide6.QtWidgets import QApplication

from explorer.arguments import above_zero, at_least
from explorer.config import RunConfig
from explorer.gui.app import create
from explorer.gui.loop import wait, wait_until
from explorer.gui.main_window import MainWindow
from explorer.optimizations import registry
from explorer.results.atomic import check_target
from explorer.results.comparison import RatioInterval, ratio_interval
from explorer.results.export import Cell, write_table
from explorer.results.log import RunRecord
from explorer.results.ring import PHASE_CODES

SETTLE_MS = 250
"""After a switch: steps that were under way, and the last samples' way to the window."""
ENOUGH = 0.01
"""Blocks go on until the interval lies within +-1% of 1, at the latest after ``--pairs``."""
FEWEST_PAIRS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tax:
    """What redraws cost one configuration in one home of the worker."""

    host: str
    batch: int
    on_ms: float
    off_ms: float
    interval: RatioInterval


def main(argv: Sequence[str]) -> int:
    """Measure, print a table and return the exit status: 0, 1 the run failed, 2 wrong request, 130 ended by Ctrl-C."""
    args = _parser().parse_args(argv)
    out = sys.stdout.write
    taxes: list[Tax] = []
    interrupted = True
    try:
        at_least("--pairs", args.pairs, FEWEST_PAIRS)
        above_zero("--block-s", args.block_s)
        batches = args.batch or [1, 8]
        # All of them, so that a wrong one is told before an hour is spent on the others.
        config, *_ = [RunConfig(model=args.model, device=args.device, seq=args.seq, batch=batch) for batch in batches]
        for setting in args.levels:
            name, _, level = setting.partition("=")
            config = registry.with_level(config, name, level)
        if args.csv is not None:
            check_target(args.csv)
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
            for host in args.host or ("process", "thread"):
                _measure(config, batches, args, host=host, settings=Path(folder) / "settings.ini", taxes=taxes)
            interrupted = False
    except (ValueError, RuntimeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ValueError) else 1
    out("worker in     batch  redraws on  redraws off  ratio (95% interval)      pairs  within 1% of 1\n")
    for tax in taxes:
        i = tax.interval
        within = "yes" if _small(i) else "no"
        out(
            f"{tax.host:<12}  {tax.batch:>5}  {tax.on_ms:>7.2f} ms  {tax.off_ms:>8.2f} ms"
            f"  {i.ratio:.4f} ({i.low:.4f}-{i.high:.4f})  {i.n_pairs:>5}  {within}\n"
        )
    if args.csv is not None and taxes:
        _write_csv(args.csv, taxes)
    return 130 if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="main.py window-tax", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--host", action="append", choices=("process", "thread"), help="repeat for both (the default)")
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, action="append", help="repeat for more (default 1 and 8)")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--set", dest="levels", action="append", default=[], metavar="TOGGLE=LEVEL")
    parser.add_argument("--pairs", type=int, default=100, help=f"most pairs of blocks, at least {FEWEST_PAIRS}")
    parser.add_argument("--block-s", type=float, default=0.5, help="length of a block")
    parser.add_argument("--csv", type=Path)
    return parser


def _measure(
    config: RunConfig, batches: Sequence[int], args: argparse.Namespace, *, host: str, settings: Path, taxes: list[Tax]
) -> None:
    """Every batch size in one run of one worker, added to ``taxes`` as they come.

    Raises:
        RuntimeError: the run failed; the message says how.
    """
    # Runs are kept as in ordinary use, so that this is part of what is measured.
    store = settings.with_name("runs.sqlite")
    options = ["main.py", "--settings", str(settings), "--store", str(store)] + (
        ["--in-process"] if host == "thread" else []
    )
    _, window = create(options)
    try:
        wait_until(lambda: window.bridge.state == "ready", window)
        window.intent.replace(config)
        window.control.start()
        for batch in batches:
            window.intent.change(batch=batch)
            taxes.append(_alternate(window, batch, args, host))
        window.control.stop()
        wait_until(lambda: not window.bridge.going, window)
    finally:
        window.close()
        QApplication.processEvents()


def _alternate(window: MainWindow, batch: int, args: argparse.Namespace, host: str) -> Tax:
    record = window.log.runs[-1]

    def steady() -> bool:
        last = record.segments[-1] if record.segments else None
        if last is None or last.config.batch != batch or not len(record.columns):
            return False
        return bool(record.columns.column("phase")[-1] == PHASE_CODES["steady"])

    sys.stderr.write(f"worker in a {host}, batch {batch}: warming up\n")
    wait_until(steady, window)
    medians: dict[bool, list[float]] = {True: [], False: []}
    order = (True, False)
    interval = None
    for pair in range(args.pairs):
        for redraw in order:
            window.panels.plots.set_redraw(redraw)
            wait(SETTLE_MS)
            medians[redraw].append(_block_ms(record, window, args.block_s))
        order = (order[1], order[0])
        if pair + 1 >= FEWEST_PAIRS:
            ratios = [on_ms / off_ms for on_ms, off_ms in zip(medians[True], medians[False], strict=True)]
            interval = ratio_interval(ratios, [1.0] * len(ratios), seed=0)
            if pair % 10 == 9:
                i = interval
                sys.stderr.write(f"  {pair + 1} pairs: {i.ratio:.4f} ({i.low:.4f}-{i.high:.4f})\n")
            if _small(interval):
                break
    window.panels.plots.set_redraw(True)
    assert interval is not None
    on_ms, off_ms = (float(np.median(medians[redraw])) for redraw in (True, False))
    return Tax(host=host, batch=batch, on_ms=on_ms, off_ms=off_ms, interval=interval)


def _small(interval: RatioInterval) -> bool:
    return interval.low >= 1 - ENOUGH and interval.high <= 1 + ENOUGH


def _block_ms(record: RunRecord, window: MainWindow, block_s: float) -> float:
    """Median step time of a block: ``block_s`` long, or ten steps where those take longer."""
    first = len(record.columns)
    wait_until(lambda: len(record.columns) >= first + 10, window, least_s=block_s)
    return float(np.median(record.columns.column("step_ms")[first:]))


def _write_csv(path: Path, taxes: Sequence[Tax]) -> None:
    write_table(path, [_row(tax) for tax in taxes])


def _row(tax: Tax) -> dict[str, Cell]:
    i = tax.interval
    ratio: dict[str, Cell] = {"ratio": i.ratio, "ratio_low": i.low, "ratio_high": i.high, "n_pairs": i.n_pairs}
    return {"worker": tax.host, "batch": tax.batch, "on_ms": tax.on_ms, "off_ms": tax.off_ms, **ratio}
