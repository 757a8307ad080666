"""Compilations that a run did not need: torch.compile did its work again since something that it relied on changed."""

from __future__ import annotations

import re
import sys
from typing import Any


class CompileWatch:
    """Tells, once each, what was compiled again in this process since this was made, by any run in it."""

    def __init__(self) -> None:
        self._last = self._newest()

    def look(self, step: int) -> list[str]:
        """A line for each compilation in ``step``, the one since the last call, that was not the first of its function.

        Each names function, seconds and the guard that failed.

        Source: torch/_dynamo/utils.py, CompilationMetrics: written at the end of each compilation, kept for 64.
        """
        newest = self._newest()
        if newest is self._last:
            return []
        last, self._last = self._last, newest
        found: list[str] = []
        for metrics in reversed(_kept()):
            if metrics is last:
                break
            if metrics.recompile_reason is not None:
                found.insert(0, _told(step, metrics))
        return found

    def _newest(self) -> Any:
        kept = _kept()
        return kept[-1] if kept else None


def _kept() -> Any:
    # Not imported by this: without a compiled model there is nothing to look at, and it takes seconds.
    utils = sys.modules.get("torch._dynamo.utils")
    return () if utils is None else utils._compilation_metrics


def _told(step: int, metrics: Any) -> str:
    seconds, why = metrics.entire_frame_compile_time_s or 0.0, _short(metrics.recompile_reason)
    return (
        f"step {step}: torch.compile compiled {metrics.co_name} again, in {seconds:.1f} s, since {why}. "
        "Its time counts as compiling"
    )


def _short(reason: str) -> str:
    """A guard's words without where in torch's and the model's sources it stands."""
    first = reason.strip().splitlines()[0]
    first = re.sub(r"^\d+/\d+: ", "", first)
    return re.sub(r"\s+#.*$", "", first).strip().replace(". ", ", ")
