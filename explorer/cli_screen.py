"""What long headless work shares: one line of progress on a terminal, and tables of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence

from explorer.messages import Event, Note, Progress, Samples
from explorer.results.blocks import Blocks

TELL_EVERY_S = 15.0
"""Seconds between two lines where there is no terminal to write one over."""


class ProgressLine:
    """A line of standard error that is written over; where that is no terminal, a line for each part of the work, and
    one every 15 s, with the time that has passed.
    """

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self.lead = ""
        """What stands before every text: how far the whole is."""
        self._began_s = time.monotonic()
        self._tell_at_s = self._began_s + TELL_EVERY_S
        self._parts = 0
        self._noted: set[str] = set()

    def show(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{self.lead}{text}")
            sys.stderr.flush()
        elif time.monotonic() >= self._tell_at_s:
            self._tell(f"{self.lead}{text}")

    def _tell(self, text: str) -> None:
        """A line of ``text``, behind the time that has passed."""
        now_s = time.monotonic()
        self._tell_at_s = now_s + TELL_EVERY_S
        sys.stderr.write(f"{now_s - self._began_s:.0f} s: {text}\n")
        sys.stderr.flush()

    def begin_part(self, name: str, left: int) -> None:
        """Lead with ``name``, with ``left`` parts to do, this one included, and how long they may take."""
        passed_s = time.monotonic() - self._began_s
        each_s = passed_s / self._parts if self._parts else None
        self._parts += 1
        time_left = "" if each_s is None else f", about {_duration(each_s * left)} left"
        self.lead = f"{name} ({left} to do{time_left}): "
        if not self._shown:
            self._tell(f"{name}, {left} to do{time_left}")

    def show_event(self, event: Event) -> None:
        """Show what the worker is doing, where ``event`` tells, and on a line of its own what disturbs it."""
        if isinstance(event, Note) and event.text not in self._noted:
            self._noted.add(event.text)  # both arms of a comparison hear it
            self.clear()
            sys.stderr.write(f"note: {event.text}\n")
        if isinstance(event, Progress):
            part = "" if event.done is None else f" {event.done:.0f}"
            whole = "" if event.total is None else f" of {event.total:.0f}"
            self.show(f"{event.activity}{part}{whole} {event.unit}".rstrip())
        if isinstance(event, Samples) and not self._shown:
            last = event.samples[-1]
            self.show(f"step {last.step}, {last.step_ms:.2f} ms")

    def show_pairs(self, blocks: Blocks) -> None:
        """Show what a comparison comes to so far."""
        i = blocks.interval()
        if i is not None:
            self.show(f"{i.n_pairs} pairs: {i.ratio:.4f}x ({i.low:.4f}-{i.high:.4f})")

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Lines with the cells of each column below one another, in the columns of ``right`` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if place in right else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def number(value: object, form: str, *, per: float = 1) -> str:
    """``value / per`` as ``form`` says, or nothing where it was not measured."""
    return format(value / per, form) if isinstance(value, (int, float)) else ""


def mfu(row: Mapping[str, object]) -> str:
    """A row's utilization: the share of the ceiling that was measured here, of the published one, or TFLOP/s."""
    for column, of in (("mfu_measured", ""), ("mfu_published", " of published")):
        share = number(row[column], ".1%")
        if share:
            return share + of
    return number(row["tflop_per_s"], ".3g") and f"{number(row['tflop_per_s'], '.3g')} TFLOP/s"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
