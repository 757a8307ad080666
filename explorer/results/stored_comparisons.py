"""Comparisons in the file of stored runs: their words and blocks. Their arms are runs like any other."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from explorer.results.blocks import comparison_row
from explorer.results.comparison_record import ComparisonRecord, comparison_from_dict, comparison_to_dict


def write(connection: sqlite3.Connection, comparison: ComparisonRecord) -> None:
    """Bring the file up to what ``comparison`` has, within the transaction that is open; its runs are in the file."""
    content = comparison_to_dict(comparison)
    blocks = content.pop("blocks")
    uids = content.pop("run_uids")
    result = comparison.result() if comparison.ended_by is not None else None
    row = (json.dumps(content), None if result is None else json.dumps(comparison_row(result)))
    found = connection.execute("SELECT id FROM comparisons WHERE uid = ?", (comparison.uid,)).fetchone()
    if found is None:
        cursor = connection.execute(
            "INSERT INTO comparisons (uid, started_at, a, b, content, result)"
            " VALUES (?, ?, (SELECT id FROM runs WHERE uid = ?), (SELECT id FROM runs WHERE uid = ?), ?, ?)",
            (comparison.uid, comparison.started_at, *uids, *row),
        )
        id = cursor.lastrowid
    else:
        (id,) = found
        connection.execute("UPDATE comparisons SET content = ?, result = ? WHERE id = ?", (*row, id))
    connection.executemany(
        "INSERT OR IGNORE INTO blocks VALUES (?, ?, ?, ?)",
        [(id, block["arm"], block["pair"], json.dumps(block)) for block in blocks],
    )


def find(connection: sqlite3.Connection, id: int) -> tuple[int, int]:
    """The runs of comparison ``id``.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    row: tuple[int, int] | None = connection.execute("SELECT a, b FROM comparisons WHERE id = ?", (id,)).fetchone()
    if row is None:
        there = ", ".join(str(other) for (other,) in connection.execute("SELECT id FROM comparisons ORDER BY id"))
        raise ValueError(f"no stored comparison has the number {id}; stored: {there or 'none'}")
    return row


def read(connection: sqlite3.Connection, id: int) -> ComparisonRecord:
    """Comparison ``id``, which is there.

    Raises:
        ValueError: its content makes no sense.
    """
    content, *uids = connection.execute(
        "SELECT content, (SELECT uid FROM runs WHERE id = a), (SELECT uid FROM runs WHERE id = b)"
        " FROM comparisons WHERE id = ?",
        (id,),
    ).fetchone()
    blocks = connection.execute("SELECT content FROM blocks WHERE comparison = ? ORDER BY pair, arm", (id,))
    values: dict[str, Any] = json.loads(content)
    return comparison_from_dict({**values, "run_uids": uids, "blocks": [json.loads(block) for (block,) in blocks]})


def delete_of_run(connection: sqlite3.Connection, run: int) -> None:
    """Take out the comparisons with an arm ``run``."""
    connection.execute("DELETE FROM blocks WHERE comparison IN (SELECT id FROM comparisons WHERE ? IN (a, b))", (run,))
    connection.execute("DELETE FROM comparisons WHERE ? IN (a, b)", (run,))
