"""The sweep: throughput and memory by batch and sequence length, and by bisection the largest batch that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from explorer.config import RunConfig
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps
from explorer.results.point import Point
from explorer.results.sweep import SeqPoints


def sweep(
    base: RunConfig,
    batches: Sequence[int],
    seqs: Sequence[int],
    series: Series,
    *,
    on_lines: Callable[[Sequence[SeqPoints]], None] = lambda lines: None,
) -> Steps[Sequence[SeqPoints]]:
    """Measure ``base`` at each sequence length with each batch, the smallest first. The worker must be ready.

    A batch that does not fit is a point like any other; those beyond it are left out, and batches between it and the
    largest that fitted are probed until the largest that fits is known. ``on_lines`` hears all points so far whenever
    there is one more.
    """
    lines: list[SeqPoints] = []
    for place, seq in enumerate(sorted(set(seqs))):
        points: dict[int, Point] = {}
        left_out: list[int] = []
        wanted = sorted(set(batches))
        for number, batch in enumerate(wanted):
            if any(point.out_of_memory for point in points.values()):
                left_out.append(batch)
                continue
            left = len(wanted) - number + len(wanted) * (len(set(seqs)) - place - 1)
            point = yield from _at(base, batch, seq, series, left, probe=False)
            if point is not None:
                points[batch] = point
            on_lines([*lines, SeqPoints(seq=seq, points=dict(points), left_out=tuple(left_out))])
        lines.append(SeqPoints(seq=seq, points=points, left_out=left_out))
    on_lines(lines)
    for place in range(len(lines)):
        while (between := _between(lines[place])) is not None:
            point = yield from _at(base, between, lines[place].seq, series, len(lines) - place, probe=True)
            if point is None or not point.done:
                break
            lines[place] = dataclasses.replace(lines[place], points={**lines[place].points, between: point})
            on_lines(lines)
    return lines


def whole_numbers(text: str) -> list[int]:
    """The numbers of ``text``, behind commas.

    Raises:
        ValueError: something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"{text!r} is not allowed; give whole numbers such as 1,2,4,8")
    return [int(part) for part in parts]


def _between(line: SeqPoints) -> int | None:
    """The batch to probe next for the largest that fits; None where that is known, or every batch fitted."""
    if line.too_large is None or line.exact:
        return None
    return ((line.largest or 0) + line.too_large) // 2


def _at(base: RunConfig, batch: int, seq: int, series: Series, left: int, *, probe: bool) -> Steps[Point | None]:
    """The point of ``base`` at this batch and length; None where it is not known and no more is to be measured."""
    config = dataclasses.replace(base, batch=batch, seq=seq)
    name = f"{'does it fit? ' if probe else ''}batch {batch} x {seq}"
    return (yield from series.measured_alone(config, probe=probe, name=name, left=left))
