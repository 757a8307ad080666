"""The English literals that the window says, read from its sources and from the registry."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from explorer.optimizations.registry import OPTIMIZATIONS
from explorer.results.how_measured import HOW_MEASURED

GUI = Path(__file__).parents[2] / "explorer" / "gui"
# Which argument of a call is an English literal.
MARKS = {"tr": 0, "later": 0, "keep": 1}


def said_by_the_window() -> Iterator[tuple[str, str]]:
    """(literal, where) of every ``tr``, ``later`` and ``keep``, and of what results say through the window."""
    yield from ((words, "how_measured.py") for words in HOW_MEASURED)
    for path in sorted(GUI.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS):
                continue
            words = node.args[MARKS[node.func.id]]
            for part in (words.body, words.orelse) if isinstance(words, ast.IfExp) else (words,):
                if isinstance(part, ast.Constant):
                    yield part.value, f"{path.name}:{node.lineno}"


def said_by_the_registry() -> Iterator[tuple[str, str]]:
    """(literal, where) of every toggle's words."""
    for o in OPTIMIZATIONS:
        for words in (o.label, o.help, o.cost, o.expect, *(need.reason for need in o.needs)):
            yield words, o.name
        for level in o.levels:
            yield level.label, f"{o.name}={level.id}"
            yield level.help, f"{o.name}={level.id}"
