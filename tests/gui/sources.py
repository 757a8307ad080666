"""The English literals that the window says, read from its sources and from the registry."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from explorer.optimizations.registry import OPTIMIZATIONS
from explorer.results.effect import NOT_YET, SEEN, SPEED_SEEN
from explorer.results.how_measured import HOW_MEASURED

GUI = Path(__file__).parents[2] / "explorer" / "gui"
# Which argument of a call is an English literal.
MARKS = {"tr": 0, "later": 0, "keep": 1}


def said_by_the_window() -> Iterator[tuple[str, str]]:
    """(literal, where) of every ``tr``, ``later`` and ``keep``, and of what results say through the window."""
    yield from ((words, "how_measured.py") for words in HOW_MEASURED)
    yield from _said_by_a_diagnosis()
    for path in sorted(GUI.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS):
                continue
            words = node.args[MARKS[node.func.id]]
            for part in (words.body, words.orelse) if isinstance(words, ast.IfExp) else (words,):
                if isinstance(part, ast.Constant):
                    yield part.value, f"{path.name}:{node.lineno}"


def _said_by_a_diagnosis() -> Iterator[tuple[str, str]]:
    """Every sentence of a finding, and of what is not known."""
    yield from ((words, "effect.py") for words in (NOT_YET, SEEN, SPEED_SEEN))
    path = GUI.parent / "results" / "diagnosis.py"
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        sentence = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 2
        if sentence and id(node) not in docstrings:
            yield node.value, f"{path.name}:{node.lineno}"


# Told on the command line only, where words are English; and what is no one's fault but ours.
UNSEEN = {"floors.py", "mini_judgement.py", "train_mini.py"}
UNSEEN |= {"live_run.py", "runner.py", "training_speed.py"}
TOLD = {"Problem", "Note", "Finding"}


def refused_below() -> Iterator[tuple[str, str]]:
    """(template, where) of every sentence that engine, toggles and experiments raise or tell of, its values as {0}."""
    for folder in ("engine", "optimizations", "experiments"):
        for path in sorted((GUI.parent / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                call = node.exc if isinstance(node, ast.Raise) else node
                if not isinstance(call, ast.Call) or path.name in UNSEEN:
                    continue
                if isinstance(node, ast.Raise) or getattr(call.func, "id", "") in TOLD:
                    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                        words = template(argument)
                        if len(re.findall("[a-z]{2,}", words)) > 2:
                            yield words, f"{path.name}:{call.lineno}"


def template(node: ast.expr) -> str:
    """A string with its values as {0}, {1}, …; nothing of what is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    number = itertools.count()
    return "".join(p.value if isinstance(p, ast.Constant) else f"{{{next(number)}}}" for p in node.values)


def said_by_the_registry() -> Iterator[tuple[str, str]]:
    """(literal, where) of every toggle's words."""
    for o in OPTIMIZATIONS:
        for words in (o.label, o.help, o.cost, o.expect, *(need.reason for need in o.needs)):
            yield words, o.name
        for level in o.levels:
            yield level.label, f"{o.name}={level.id}"
            yield level.help, f"{o.name}={level.id}"
