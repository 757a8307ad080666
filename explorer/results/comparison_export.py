"""A comparison as a file: one row of CSV, or a page of Markdown with the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from explorer.results.atomic import replaced
from explorer.results.export import Cell, text_writer, write_rows


def write_comparison(path: Path, row: Mapping[str, Cell], *, words: str) -> None:
    """Write ``row`` to ``path`` atomically: Markdown under ``words`` where its name ends in .md, else CSV.

    Raises:
        ValueError: ``path`` cannot be written to.
        RuntimeError: the disk is full or fails.
    """
    with replaced(path) as file, text_writer(file) as text:
        if path.suffix.lower() == ".md":
            text.write(markdown(row, words=words))
        else:
            write_rows(text, [row])


def markdown(row: Mapping[str, Cell], *, words: str) -> str:
    """A paragraph of ``words`` and a table with a line a column of ``row``: as one line it could not be read."""
    lines = ["| column | value |", "| --- | --- |"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in row.items()]
    return f"{words}\n\n" + "\n".join(lines) + "\n"


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace("|", "\\|").replace("\n", " ")
