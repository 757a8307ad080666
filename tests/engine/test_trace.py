"""A trace as torch.profiler writes it, made by hand, and what is read out of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from explorer.engine.trace import executions, read_profile
from explorer.results.proof import Kernel, Profile, Tally
from explorer.results.token_account import Execution


def event(kind: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def operator(
    name: str, ts: float, dur: float, tid: int = 1, types: tuple[str, ...] = (), **args: Any
) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid, **{"Input type": list(types)}, **args)


def kernel(name: str, ts: float, dur: float, correlation: int, tid: int = 7) -> dict[str, Any]:
    return event("kernel", name, ts, dur, tid, correlation=correlation)


def read(*events: dict[str, Any], device: str = "cpu", own: frozenset[str] = frozenset()) -> Profile:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 1, "ts": 0.0}  # arrows are no work
    return read_profile(
        [flow, *events],
        device=device,
        workload="train",
        steps=1,
        step_ms=0.05,
        blocks=3,
        width=32,
        vocabulary=96,
        own_kernels=own,
        tf32_allowed=True,
    )


def test_that_the_gpu_is_busy_while_anything_runs_on_any_stream() -> None:
    profile = read(
        kernel("gemm", 100.0, 10.0, 1),
        kernel("gemm", 105.0, 10.0, 2, tid=8),  # overlaps by 5
        kernel("inside", 106.0, 1.0, 3, tid=9),
        event("gpu_memcpy", "Memcpy HtoD", 120.0, 4.0),
        event("gpu_memset", "Memset", 124.0, 1.0),
        event("cuda_runtime", "cudaDeviceSynchronize", 100.0, 500.0),
        device="cuda",
    )
    assert profile.busy_ms == pytest.approx(0.020)
    assert profile.busy_share == pytest.approx(0.4)
    assert profile.kernels == (
        Kernel(name="gemm", count=2, total_us=20.0),
        Kernel(name="inside", count=1, total_us=1.0),
    )


def test_that_kernels_are_listed_one_by_one_as_they_began() -> None:
    events = [kernel("late", 9.0, 2.0, 1), event("gpu_memcpy", "Memcpy", 1.0, 1.0), kernel("early", 3.0, 8.0, 2)]
    assert executions([*events, operator("aten::mm", 0.0, 1.0), {"ph": "s", "cat": "kernel", "ts": 0.0}]) == (
        Execution(name="early", start_us=3.0, end_us=11.0),
        Execution(name="late", start_us=9.0, end_us=11.0),
    )


def test_that_a_graph_is_launched_once_for_all_its_kernels() -> None:
    profile = read(
        kernel("gemm", 1.0, 1.0, 11),
        kernel("gemm", 3.0, 1.0, 12),
        kernel("in the graph", 5.0, 1.0, 13),
        kernel("in the graph too", 7.0, 1.0, 13),
        event("gpu_memcpy", "Memcpy HtoD", 9.0, 1.0, correlation=14),
        event("cuda_runtime", "cudaGraphLaunch", 4.0, 1.0, correlation=13),
        event("cuda_runtime", "cudaStreamIsCapturing", 9.0, 1.0, correlation=15),
        device="cuda",
    )
    assert profile.launches == 3


def test_that_fused_attention_is_seen_to_be_given_a_mask() -> None:
    qkv = [[2, 4, 8, 16]] * 3
    profile = read(
        operator("aten::_scaled_dot_product_cudnn_attention", 1.0, 1.0, **{"Input Dims": [*qkv, [2, 1, 8, 8], []]}),
        operator("aten::_scaled_dot_product_cudnn_attention", 3.0, 1.0, **{"Input Dims": [*qkv, [], []]}),
        operator("aten::_scaled_dot_product_flash_attention", 5.0, 1.0, **{"Input Dims": [*qkv, [], []]}),
        operator("aten::_scaled_dot_product_flash_attention_for_cpu", 7.0, 1.0, **{"Input Dims": qkv}),
    )
    assert profile.attention_masks == 1


def test_that_sums_over_the_residual_stream_are_counted_by_the_format_of_their_result() -> None:
    def add(start: float, left: list[int], right: list[int], *types: str, name: str = "aten::add") -> dict[str, Any]:
        return operator(name, start, 1.0, types=types, **{"Input Dims": [left, right, []]})

    stream, half = [2, 8, 32], "c10::BFloat16"
    profile = read(
        add(1.0, stream, stream, "float", half),
        add(3.0, stream, stream, half, half),
        add(5.0, stream, stream, half, half, name="aten::add_"),
        add(7.0, stream, [1, 8, 32], "float", "float"),
        add(9.0, [2, 8, 128], [2, 8, 128], half, half),
        add(11.0, stream, [], half, ""),
        operator("aten::mul", 13.0, 1.0, types=(half, half), **{"Input Dims": [stream, stream]}),
    )
    assert profile.residual_adds == (
        Tally(op="add", dtype="bfloat16", count=2),
        Tally(op="add", dtype="float32", count=1),
    )


def test_that_the_widest_product_is_that_of_the_most_columns() -> None:
    profile = read(
        operator("aten::mm", 1.0, 1.0, **{"Input Dims": [[64, 16], [16, 96]]}),
        operator("aten::mm", 3.0, 1.0, **{"Input Dims": [[96, 64], [64, 16]]}),
        operator("aten::addmm", 5.0, 1.0, **{"Input Dims": [[48], [640, 16], [16, 48]]}),
        operator("aten::bmm", 7.0, 1.0, **{"Input Dims": [[2, 640, 16], [2, 16, 640]]}),
    )
    assert (profile.widest_product, profile.vocabulary) == (96, 96)


def test_that_a_product_counts_where_it_computes_and_not_where_autocast_casts() -> None:
    half = ("c10::BFloat16",) * 3
    profile = read(
        operator("aten::addmm", 10.0, 50.0, types=("float", "float", "float")),
        operator("aten::to", 12.0, 5.0),
        operator("aten::addmm", 20.0, 30.0, types=half),
        operator("aten::mm", 20.0, 30.0, tid=2, types=("float", "float")),  # at the same time on another thread
        operator("aten::bmm", 70.0, 5.0, types=("c10::Half", "float")),
        operator("aten::baddbmm", 75.0, 5.0, types=("float", "double", "double")),
    )
    assert profile.products == (
        Tally(op="addmm", dtype="bfloat16", count=1),
        Tally(op="baddbmm", dtype="float64", count=1),
        Tally(op="bmm", dtype="float16 x float32", count=1),
        Tally(op="mm", dtype="float32", count=1),
    )


def test_that_an_operators_time_is_its_own_on_the_cpu() -> None:
    profile = read(
        operator("autograd::engine::evaluate_function: AddmmBackward0", 0.0, 100.0),
        operator("AddmmBackward0", 0.0, 90.0),
        operator("aten::linear", 10.0, 40.0),
        operator("aten::mm", 10.0, 25.0, types=("float", "float")),
        operator("aten::fill_", 12.0, 5.0),
        operator("aten::fill_", 35.0, 5.0),  # begins as mm ends: beside it
        operator("aten::fill_", 20.0, 8.0, tid=2),
    )
    assert {kernel.name: kernel.total_us for kernel in profile.kernels} == {
        "aten::mm": 20.0,
        "aten::fill_": 18.0,
        "aten::linear": 10.0,
    }
    assert profile.kernels[0].name == "aten::mm"
    assert profile.operator_count("aten::fill_") == 3
    assert profile.launches is None
    assert math.isnan(profile.busy_share)


def test_that_only_softmaxes_over_four_dimensions_are_attentions() -> None:
    def softmax(dims: list[int], dtype: str, to_float: str) -> dict[str, Any]:
        inputs = {"Input Dims": [dims, [], []], "Concrete Inputs": ["", "-1", to_float]}
        return operator("aten::_softmax", 0.0, 1.0, types=(dtype, "Scalar", "Scalar"), **inputs)

    profile = read(
        softmax([2, 4, 8, 8], "c10::Half", "False"),
        softmax([2, 4, 8, 8], "c10::Half", "True"),  # reads half, computes and writes float32
        softmax([2, 4, 8, 8], "float", "False"),
        softmax([1, 8192], "float", "False"),  # choosing a token
    )
    assert profile.attention_softmax == (
        Tally(op="_softmax", dtype="float16", count=1),
        Tally(op="_softmax", dtype="float32", count=2),
    )


def test_that_the_largest_dropout_of_attention_is_kept() -> None:
    def attention(dropout: str) -> dict[str, Any]:
        return operator(
            "aten::scaled_dot_product_attention", 0.0, 1.0, **{"Concrete Inputs": ["", "", "", "", dropout]}
        )

    assert read(attention("0."), attention("0.10000000000000001"), attention("")).attention_dropout == 0.1
    assert read().attention_dropout == 0.0


def test_that_blocks_that_began_twice_were_recomputed() -> None:
    marks = [event("user_annotation", f"explorer block {index}", 1.0, 0.1) for index in (0, 1, 2, 2, 0)]
    profile = read(*marks, event("gpu_user_annotation", "explorer block 1", 1.0, 0.1))
    assert profile.block_forwards == (2, 1, 2)
    assert profile.recomputed_blocks == (0, 2)


def test_that_own_triton_kernels_are_those_that_ran() -> None:
    ran = kernel("gelu_forward", 0.0, 1.0, 1), kernel("triton_poi_fused_add_0", 1.0, 1.0, 2)
    assert read(*ran, device="cuda", own=frozenset({"gelu_forward", "gelu_backward"})).triton_kernels == (
        "gelu_forward",
    )


def test_that_a_trace_of_a_gpu_without_kernels_is_no_profile() -> None:
    with pytest.raises(RuntimeError, match="CUPTI"):
        read(operator("aten::mm", 0.0, 1.0, types=("float", "float")), device="cuda")


def test_that_layer_norms_are_counted_by_the_format_of_their_weights() -> None:
    types = ("c10::BFloat16", "", "float", "float")
    profile = read(
        operator("aten::layer_norm", 1.0, 5.0, types=types),
        operator("aten::native_layer_norm", 2.0, 3.0, types=types),
        operator("aten::native_layer_norm", 12.0, 3.0, types=("float", "", "c10::Half", "c10::Half")),
    )
    assert profile.norms == (
        Tally(op="native_layer_norm", dtype="float16", count=1),
        Tally(op="native_layer_norm", dtype="float32", count=1),
    )
