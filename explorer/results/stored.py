"""The lists of what is stored: a line a run and a line a comparison, read without any sample."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from explorer.config import RunConfig
from explorer.results.label import label
from explorer.results.sample import NAN

LOST_AFTER_S = 10.0
"""A run that is said to be going but was not kept for so long ended with its program."""
LOST = "the program ended before the run did; at most its last second is missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A line of the list of stored runs. Figures are those of its last segment; NaN, or -1 bytes: not measured."""

    id: int
    uid: str
    started_at: str
    config: RunConfig
    """Of the last segment as it ran; as asked for where none began."""
    reference: RunConfig
    segments: int
    samples: int
    """Of all segments."""
    device_name: str | None
    outcome: str
    problem: str | None
    origin: str | None
    """The bundle or CSV that it came in from another place; None for a run of this file's own."""
    tokens_per_s: float = NAN
    """Median; likewise the next."""
    step_ms: float = NAN
    settled: bool = False
    peak_allocated_bytes: int = -1
    device_used_bytes: int = -1

    def label(self, toggles: Mapping[str, str]) -> str:
        """See ``RunRecord.label``."""
        return label(self.config, reference=self.reference, toggles=toggles)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A line of the list of stored comparisons."""

    id: int
    uid: str
    started_at: str
    names: tuple[str, str]
    run_ids: tuple[int, int]
    result: Mapping[str, Any] | None
    """As ``comparison_row``; None where it never came to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Stored runs, oldest first."""

    runs: tuple[StoredRun, ...]
    unreadable: tuple[str, ...]
    """Why a run is left out, a line each."""
    total: int
    """Runs in the file, whether listed or not."""


def list_runs(connection: sqlite3.Connection, limit: int | None) -> Listing:
    """The last ``limit`` runs, or all."""
    rows = connection.execute(
        "SELECT r.id, uid, started_at, r.config, reference, samples, device_name, outcome, problem, origin, seen_at,"
        " (SELECT count(*) FROM segments WHERE run = r.id), s.config, s.summary"
        " FROM runs r LEFT JOIN segments s"
        " ON s.run = r.id AND s.position = (SELECT max(position) FROM segments WHERE run = r.id)"
        " ORDER BY r.id DESC LIMIT ?",
        (-1 if limit is None else limit,),
    ).fetchall()
    # Most runs share their settings with others: reading 10,000 takes a third of the time so.
    read = cache(lambda text: RunConfig.from_dict(json.loads(text)))
    listed, unreadable = [], []
    for row in reversed(rows):
        try:
            listed.append(_line(read, *row))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            unreadable.append(f"run {row[0]} is damaged, or of a newer explorer: {error}")
    (total,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return Listing(runs=tuple(listed), unreadable=tuple(unreadable), total=total)


def list_comparisons(connection: sqlite3.Connection, limit: int | None) -> list[StoredComparison]:
    """The last ``limit`` comparisons, or all, oldest first.

    Raises:
        ValueError: the content of one makes no sense.
    """
    rows = connection.execute(
        "SELECT id, uid, started_at, a, b, content, result FROM comparisons ORDER BY id DESC LIMIT ?",
        (-1 if limit is None else limit,),
    ).fetchall()
    listed = []
    for id, uid, started_at, a, b, content, result in reversed(rows):
        name_a, name_b = json.loads(content)["names"]
        listed.append(
            StoredComparison(
                id=id,
                uid=uid,
                started_at=started_at,
                names=(name_a, name_b),
                run_ids=(a, b),
                result=None if result is None else json.loads(result),
            )
        )
    return listed


def as_of_now(outcome: str, problem: str | None, seen_at: float) -> tuple[str, str | None]:
    """The outcome, that of a run whose program died included.

    A moment in the future is of before the clock was set back: a program that lives has written a newer one since.
    """
    if outcome == "running" and abs(time.time() - seen_at) > LOST_AFTER_S:
        return "incomplete", LOST
    return outcome, problem


def _line(
    read: Callable[[str], RunConfig],
    id: int,
    uid: str,
    started_at: str,
    config: str,
    reference: str,
    samples: int,
    device_name: str | None,
    outcome: str,
    problem: str | None,
    origin: str | None,
    seen_at: float,
    segments: int,
    last: str | None,
    summary: str | None,
) -> StoredRun:
    outcome, problem = as_of_now(outcome, problem, seen_at)
    figures: Mapping[str, Any] = {} if summary is None else json.loads(summary)
    return StoredRun(
        id=id,
        uid=uid,
        started_at=started_at,
        config=read(config if last is None else last),
        reference=read(reference),
        segments=segments,
        samples=samples,
        device_name=device_name,
        outcome=outcome,
        problem=problem,
        origin=origin,
        tokens_per_s=float(figures.get("tokens_per_s_median", NAN)),
        step_ms=float(figures.get("step_ms_median", NAN)),
        settled=bool(figures.get("settled", False)),
        peak_allocated_bytes=int(figures.get("peak_allocated_bytes", -1)),
        device_used_bytes=int(figures.get("device_used_bytes", -1)),
    )
