from __future__ import annotations

from pathlib import Path

import pytest

from explorer.config import RunConfig


@pytest.fixture(scope="module")
def tiny(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of steps that take milliseconds."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-3)
