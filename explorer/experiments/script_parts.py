"""The snippets of several toggles put together, place by place."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

from explorer.optimizations.snippet import Snippet

ONCE = (
    "batches",
    "loss",
    "backward",
    "after_backward",
    "update",
    "after_step",
    "step",
    "cache",
    "prefill",
    "before_decoding",
    "decode",
)
"""Places that hold one snippet's lines only."""


@dataclass(slots=True)
class Parts:
    """What the toggles add, in the order in which they are entered."""

    imports: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    around: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    optimizer: list[str] = field(default_factory=list)
    before_steps: list[str] = field(default_factory=list)
    micro_batches: int = 1
    one: dict[str, str] = field(default_factory=dict)

    def add(self, snippet: Snippet, what: str) -> None:
        """Add ``snippet``; ``what`` becomes the comment over its lines.

        Raises:
            ValueError: another toggle has taken a place that it needs.
        """
        self.imports += snippet.imports
        self.around += snippet.around
        self.forward += snippet.forward
        self.optimizer += snippet.optimizer
        self.micro_batches *= snippet.micro_batches
        if snippet.definitions:
            self.definitions.append(snippet.definitions.strip("\n"))
        for place in ("setup", "before_steps"):
            lines = getattr(snippet, place).strip("\n")
            if lines:
                getattr(self, place).append(f"# {what}\n{lines}")
        for place in ONCE:
            lines = getattr(snippet, place).strip("\n")
            if lines and place in self.one:
                raise ValueError(f"{what} cannot be exported beside another toggle that changes the {place}")
            if lines:
                self.one[place] = lines

    def the(self, place: str, otherwise: str) -> str:
        """The lines of a place that holds one snippet's only, or ``otherwise``."""
        return self.one.get(place, otherwise)


def in_context(managers: Iterable[str], body: str) -> str:
    """``body`` within ``managers``, or as it is without any."""
    managed = ", ".join(managers)
    return f"with {managed}:\n{textwrap.indent(body, '    ')}" if managed else body


def sorted_imports(lines: Iterable[str]) -> str:
    """Import lines, each once and those from one module together: the standard library's first, then the others."""
    names: dict[str, set[str]] = {}
    plain: set[str] = set()
    for line in lines:
        if line.startswith("from "):
            module, _, imported = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, set()).update(imported.split(", "))
        else:
            plain.add(line)
    unique = sorted(plain) + [f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)]
    standard = [line for line in unique if _root(line) in sys.stdlib_module_names]
    others = [line for line in unique if _root(line) not in sys.stdlib_module_names]
    return "\n".join(standard) + "\n\n" + "\n".join(others) + "\n"


def quoted(text: str) -> str:
    """``text`` as a string in source, in double quotes as formatters want it."""
    return visible(json.dumps(text, ensure_ascii=False))


def visible(text: str) -> str:
    """``text`` with escapes for what no source file can hold (zero bytes, half characters) or would end a line."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _root(line: str) -> str:
    return line.split()[1].split(".")[0]
