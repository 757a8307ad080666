"""The sweep: throughput and memory by batch and sequence length, and by bisection the largest batch that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from explorer.config import RunConfig
from explorer.experiments.series import Series
from explorer.experiments.steps import Steps
from explorer.results.point import Point
from explorer.results.sweep import SeqPoints


def sweep(base: RunConfig, batches: Sequence[int], seqs: Sequence[int], series: Series) -> Steps[Sequence[SeqPoints]]:
    """Measure ``base`` at each sequence length with each batch, the smallest first. The worker must be ready.

    A batch that does not fit is a point like any other; those beyond it are left out, and batches between it and the
    largest that fitted are probed until the largest that fits is known.
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
        lines.append(SeqPoints(seq=seq, points=points, left_out=left_out))
    for place, line in enumerate(lines):
        lines[place] = yield from _bracketed(base, line, series, len(lines) - place)
    return lines


def _bracketed(base: RunConfig, line: SeqPoints, series: Series, left: int) -> Steps[SeqPoints]:
    """``line`` with the probes that tell the largest batch; unchanged where every batch fitted."""
    while line.too_large is not None and not line.exact:
        batch = ((line.largest or 0) + line.too_large) // 2
        point = yield from _at(base, batch, line.seq, series, left, probe=True)
        if point is None or not point.done:
            break
        line = dataclasses.replace(line, points={**line.points, batch: point})
    return line


def _at(base: RunConfig, batch: int, seq: int, series: Series, left: int, *, probe: bool) -> Steps[Point | None]:
    """The point of ``base`` at this batch and length; None where it is not known and no more is to be measured."""
    config = dataclasses.replace(base, batch=batch, seq=seq)
    if not series.asked_to_stop():
        series.on_part(f"{'does it fit? ' if probe else ''}batch {batch} x {seq}", left)
        return (yield from series.measured_alone(config, probe=probe))
    return series.known_alone(config, probe=probe)
