"""The ceilings that the lab holds kernels against."""

from __future__ import annotations

import pytest
import torch

from explorer.engine.kernel_timing import Call, Stopwatch, Times


@pytest.mark.parametrize("us", [(4.0, 8.0), (8.0, 4.0)])
def test_that_a_copy_is_the_faster_of_two_that_move_the_bytes(
    us: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[int, bool]] = []

    def kernel(_: Stopwatch, copy: Call) -> Times:
        target: torch.Tensor = copy()
        moved.append((target.nbytes, bool(target.all())))
        return Times(us=[us[len(moved) - 1]], timed_by="graph")

    monkeypatch.setattr(Stopwatch, "kernel", kernel)
    stopwatch = Stopwatch(torch.device("cpu"), quick=True)
    assert stopwatch.copy_gb_per_s(16_000) == 16_000 / 4.0 / 1e3
    assert moved == [(8_000, False), (8_000, True)]  # zeros as they are, and inverted
    assert stopwatch.copy_gb_per_s(16_000) == 4.0
    assert len(moved) == 2
