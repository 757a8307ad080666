from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.config import RunConfig

Tried = Callable[[str, str, str], None]
_TRIED = pytest.StashKey[list[tuple[str, str, str]]]()


@pytest.fixture(scope="module")
def tiny(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of steps that take milliseconds."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-3)


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Tried:
    """Takes a line of the table that ``pytest -m gpu`` ends with: the fault, what was done, what held."""
    rows = request.config.stash.setdefault(_TRIED, [])
    return lambda fault, done, held: rows.append((fault, done, held))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(_TRIED, [])
    if rows:
        terminalreporter.write_line("\n| fault | what was done | what held |\n|---|---|---|")
        for row in rows:
            terminalreporter.write_line(f"| {' | '.join(row)} |")
