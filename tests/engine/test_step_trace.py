"""A trace of two steps as torch.profiler writes it, made by hand, and where its time is said to have gone."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from explorer.engine.step_trace import read_steps
from explorer.results.step_profile import KernelTime, PartTime, StepProfile


def event(kind: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def part(name: str, ts: float, dur: float) -> dict[str, Any]:
    return event("user_annotation", f"explorer part {name}", ts, dur)


def launch(ts: float, correlation: int, tid: int = 1, kind: str = "cuda_runtime") -> dict[str, Any]:
    return event(kind, "cudaLaunchKernel", ts, 1.0, tid, correlation=correlation)


def kernel(name: str, ts: float, dur: float, correlation: int, tid: int = 7) -> dict[str, Any]:
    return event("kernel", name, ts, dur, tid, correlation=correlation)


def read(
    *events: dict[str, Any], device: Literal["cuda", "cpu"], rounds: int = 1, round_ms: float = 0.1
) -> StepProfile:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 1, "ts": 0.0}  # arrows are no work
    return read_steps(
        [flow, *events],
        device=device,
        workload="train",
        rounds=rounds,
        passes=1,
        round_ms=round_ms,
        replayed=False,
    )


def test_that_a_kernel_is_of_the_part_that_launched_it_and_a_gap_of_the_part_that_ends_it() -> None:
    profile = read(
        event("user_annotation", "ProfilerStep#1", 0.0, 900.0),
        event("gpu_user_annotation", "explorer part forward", 112.0, 500.0, tid=7),
        part("step", 100.0, 100.0),
        part("optimizer", 101.0, 2.0),
        part("forward", 105.0, 20.0),
        part("backward", 130.0, 40.0),
        part("optimizer", 172.0, 10.0),
        part("step", 205.0, 50.0),
        part("forward", 210.0, 10.0),
        launch(106.0, 1),
        launch(108.0, 2, kind="cuda_driver"),  # as Triton launches
        launch(135.0, 3, tid=2),  # by autograd's thread
        launch(174.0, 4),
        launch(190.0, 5),  # in the step and in none of its parts
        launch(211.0, 6),
        kernel("gemm", 110.0, 20.0, 1),
        kernel("triton_gelu", 125.0, 15.0, 2, tid=8),  # beside the one before for 5
        kernel("gemm", 150.0, 30.0, 3),
        kernel("adam", 200.0, 10.0, 4),
        event("gpu_memcpy", "Memcpy DtoH", 210.0, 2.0, 7, correlation=5),
        kernel("gemm", 240.0, 20.0, 6),
        device="cuda",
        rounds=2,
        round_ms=0.06,
    )
    assert profile.parts == (
        PartTime(name="backward", busy_ms=0.030, waiting_ms=0.010, runs=1),
        PartTime(name="optimizer", busy_ms=0.010, waiting_ms=0.020, runs=1),
        # 10 until the first kernel, 28 between the copy and the second step's.
        PartTime(name="forward", busy_ms=0.050, waiting_ms=pytest.approx(0.038), runs=3),
        PartTime(name="rest of the step", busy_ms=0.002, waiting_ms=0.0, runs=1),
    )
    assert profile.traced_ms == pytest.approx(0.160)  # until the last kernel's end: the host was done at 255
    assert profile.busy_ms + profile.waiting_ms == pytest.approx(profile.traced_ms)
    assert profile.overlap_ms == pytest.approx(0.005)
    assert profile.idle_share == pytest.approx(1 - 0.092 / 2 / 0.06)
    assert (profile.longest_gap_ms, profile.longest_gap_part) == (pytest.approx(0.028), "forward")
    assert profile.launches == 5
    assert profile.kernels == (
        KernelTime(name="gemm", part="forward", count=3, total_ms=0.070),
        KernelTime(name="triton_gelu", part="forward", count=1, total_ms=0.015),
        KernelTime(name="adam", part="optimizer", count=1, total_ms=0.010),
        KernelTime(name="Memcpy DtoH", part="rest of the step", count=1, total_ms=0.002),
    )
    assert profile.kinds() == pytest.approx(
        {"matrix products": 0.070, "GeLU": 0.015, "AdamW and clipping": 0.010, "copies": 0.002}
    )


def test_that_on_the_cpu_time_between_operators_is_of_the_part_that_python_was_in() -> None:
    profile = read(
        part("step", 100.0, 100.0),
        part("data", 102.0, 20.0),
        part("forward", 130.0, 50.0),
        event("cpu_op", "aten::linear", 140.0, 20.0),
        event("cpu_op", "aten::addmm", 145.0, 10.0),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 165.0, 10.0),  # only calls operators
        event("cpu_op", "aten::empty", 190.0, 2.0),
        event("cpu_op", "aten::item", 300.0, 9.0),  # after the steps
        event("cpu_op", "aten::sum", 150.0, 30.0, tid=2),  # another thread's
        device="cpu",
    )
    assert profile.parts == (
        PartTime(name="data", busy_ms=0.0, waiting_ms=0.020, runs=0),
        PartTime(name="forward", busy_ms=0.020, waiting_ms=0.030, runs=2),
        PartTime(name="rest of the step", busy_ms=0.002, waiting_ms=0.028, runs=1),
    )
    assert profile.traced_ms == pytest.approx(0.1)
    assert [(k.name, k.total_ms) for k in profile.kernels] == [
        ("aten::addmm", 0.010),
        ("aten::linear", 0.010),
        ("aten::empty", 0.002),
    ]
    assert profile.launches is None
    assert profile.idle_share == pytest.approx(0.78)


def test_that_parts_within_parts_have_their_own_time() -> None:
    profile = read(
        part("step", 100.0, 100.0),
        part("decode", 100.0, 90.0),
        part("sampling", 150.0, 20.0),
        launch(101.0, 1),
        launch(151.0, 2),
        launch(172.0, 3),
        kernel("a", 102.0, 50.0, 1),
        kernel("b", 152.0, 20.0, 2),
        kernel("a", 173.0, 27.0, 3),
        device="cuda",
    )
    assert [(p.name, p.busy_ms, p.waiting_ms) for p in profile.parts] == [
        ("decode", pytest.approx(0.077), pytest.approx(0.003)),
        ("sampling", pytest.approx(0.020), 0.0),
        ("rest of the step", 0.0, 0.0),
    ]


def test_that_a_trace_without_kernels_is_no_profile_of_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="recorded no kernel"):
        read(part("step", 1.0, 1.0), launch(1.0, 1), device="cuda")
