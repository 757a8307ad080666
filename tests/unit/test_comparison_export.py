"""A comparison's row in files."""

from __future__ import annotations

import csv
from pathlib import Path

from explorer.results.comparison_export import markdown, write_comparison

ROW = {"a": "x | y", "speedup": 1.5, "floor_measured": False, "memory_ratio": None, "n_pairs": 8}


def test_that_markdown_says_it_in_words_and_has_a_line_a_column() -> None:
    assert markdown(ROW, words="B is faster").splitlines() == [
        "B is faster",
        "",
        "| column | value |",
        "| --- | --- |",
        "| a | x \\| y |",
        "| speedup | 1.5 |",
        "| floor_measured | false |",
        "| memory_ratio |  |",
        "| n_pairs | 8 |",
    ]


def test_that_the_name_of_the_file_decides(tmp_path: Path) -> None:
    for name in ("c.csv", "c.MD"):
        write_comparison(tmp_path / name, ROW, words="B is faster")
    assert (tmp_path / "c.MD").read_text() == markdown(ROW, words="B is faster")
    with (tmp_path / "c.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"a": "x | y", "speedup": "1.5", "floor_measured": "false", "memory_ratio": "", "n_pairs": "8"}
