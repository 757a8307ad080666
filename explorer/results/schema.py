"""The tables of the file of stored runs, and how a file made before this code gets what it lacks."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.results.ring import DTYPES
from explorer.results.sample import Sample

SCHEMA_VERSION = 1
APPLICATION_ID = 0x47324F45
"""In the file's header: tells it from other programs' SQLite files."""

DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in dataclasses.fields(Sample) if field.default is not dataclasses.MISSING
}
"""What a sample has in the columns that its file or bundle, made by another version, does not have."""

_TYPES: Mapping[type[np.generic], str] = {
    np.int64: "INTEGER NOT NULL",
    np.bool_: "INTEGER NOT NULL",
    np.uint8: "TEXT NOT NULL",  # the phase, by name
    np.float64: "REAL",  # NULL where it is NaN
}


ADDED: Mapping[str, str] = {"notes": "[]", "ways_out": "{}", "failure": "{}", "marks": "[]"}
"""Columns of runs that a file made before them lacks, with what stands in them then: JSON."""


def _column(name: str) -> str:
    kind = _TYPES[DTYPES[name]]
    return f"{name} {kind}" + (f" DEFAULT {int(DEFAULTS[name])}" if name in DEFAULTS and kind != "REAL" else "")


def _added(default: str) -> str:
    return f"TEXT NOT NULL DEFAULT '{default}'"


# A number is never given twice, even after its run was deleted: people write them down.
_SCHEMA = f"""
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE, started_at TEXT NOT NULL, seen_at REAL NOT NULL,
    config TEXT NOT NULL, reference TEXT NOT NULL, outcome TEXT NOT NULL, problem TEXT, samples INTEGER NOT NULL,
    device_name TEXT, origin TEXT, environment TEXT,
    {", ".join(f"{name} {_added(default)}" for name, default in ADDED.items())});
CREATE TABLE segments (run INTEGER NOT NULL REFERENCES runs, position INTEGER NOT NULL, content TEXT NOT NULL,
    config TEXT NOT NULL, summary TEXT NOT NULL, PRIMARY KEY (run, position)) WITHOUT ROWID;
CREATE TABLE texts (run INTEGER NOT NULL REFERENCES runs, position INTEGER NOT NULL, piece TEXT NOT NULL,
    PRIMARY KEY (run, position)) WITHOUT ROWID;
CREATE TABLE samples (run INTEGER NOT NULL REFERENCES runs, position INTEGER NOT NULL,
    {", ".join(map(_column, DTYPES))},
    PRIMARY KEY (run, position)) WITHOUT ROWID;
CREATE TABLE comparisons (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE, started_at TEXT NOT NULL,
    a INTEGER NOT NULL REFERENCES runs, b INTEGER NOT NULL REFERENCES runs, content TEXT NOT NULL, result TEXT);
CREATE TABLE blocks (comparison INTEGER NOT NULL REFERENCES comparisons, arm INTEGER NOT NULL, pair INTEGER NOT NULL,
    content TEXT NOT NULL, PRIMARY KEY (comparison, arm, pair)) WITHOUT ROWID;
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, within the transaction that is open."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def complete(connection: sqlite3.Connection) -> None:
    """Add the columns of samples that were not measured yet when the file was made, and those of runs."""
    there = sample_columns(connection)
    for name in DTYPES:
        if name not in there:
            connection.execute(f"ALTER TABLE samples ADD COLUMN {_column(name)}")
    for name in lacking(connection):
        connection.execute(f"ALTER TABLE runs ADD COLUMN {name} {_added(ADDED[name])}")


def lacking(connection: sqlite3.Connection) -> frozenset[str]:
    """Those of ``ADDED`` that runs do not have in this file."""
    return frozenset(ADDED) - {row[1] for row in connection.execute("PRAGMA table_info(runs)")}


def sample_columns(connection: sqlite3.Connection) -> list[str]:
    """The names of the columns that samples have in this file."""
    return [row[1] for row in connection.execute("PRAGMA table_info(samples)")]
