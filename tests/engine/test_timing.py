from __future__ import annotations

import time

import pytest
import torch

from explorer.engine.timing import DEPTH, StepPipeline

CPU = torch.device("cpu")


def test_that_a_step_reaches_from_the_end_of_the_one_before_to_its_own_end() -> None:
    pipeline: StepPipeline[str] = StepPipeline(CPU)
    pipeline.restart()
    began = time.perf_counter()
    for name, wait_s in (("short", 0.02), ("long", 0.08)):
        until = time.perf_counter() + wait_s
        while time.perf_counter() < until:
            pass
        pipeline.submit([torch.tensor(wait_s)], name)
    total_ms = (time.perf_counter() - began) * 1e3
    short, long = pipeline.collect()
    assert (short.note, long.note) == ("short", "long")
    assert short.values == pytest.approx([0.02])
    assert 20 <= short.step_ms < long.step_ms
    assert short.step_ms + long.step_ms == pytest.approx(total_ms, abs=5)
    assert long.time_s * 1e3 == pytest.approx(short.step_ms + long.step_ms)


def test_that_time_between_segments_passes_but_belongs_to_no_step() -> None:
    pipeline: StepPipeline[None] = StepPipeline(CPU)
    pipeline.restart()
    pipeline.submit([], None)
    (first,) = pipeline.collect()
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass
    pipeline.restart()
    pipeline.submit([], None)
    (second,) = pipeline.collect()
    assert second.step_ms < 40
    assert second.time_s >= first.time_s + 0.05


def test_that_vectors_and_scalars_come_back_in_order() -> None:
    pipeline: StepPipeline[None] = StepPipeline(CPU)
    pipeline.restart()
    pipeline.submit([torch.tensor([50256, 8191]), torch.tensor(1.5), torch.tensor([[2.0]])], None)
    assert pipeline.collect()[0].values == [50256.0, 8191.0, 1.5, 2.0]


@pytest.mark.gpu
@pytest.mark.alone
def test_that_events_agree_with_a_synchronised_clock_and_never_run_far_ahead() -> None:
    device = torch.device("cuda")
    a = torch.randn(4096, 4096, device=device)

    def work() -> torch.Tensor:
        x = a
        for _ in range(20):
            x = x @ a / 64
        return x.sum()

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        work()
    torch.cuda.synchronize()
    synchronised_ms = (time.perf_counter() - began) * 1e3 / 10

    pipeline: StepPipeline[int] = StepPipeline(device)
    pipeline.restart()
    seen = []
    for n in range(10):
        pipeline.submit([work()], n)
        seen += pipeline.collect()
        assert n + 1 - len(seen) < DEPTH
    seen += pipeline.collect(all_of_them=True)
    assert [step.note for step in seen] == list(range(10))
    measured_ms = sum(step.step_ms for step in seen) / 10
    assert measured_ms == pytest.approx(synchronised_ms, rel=0.05)
