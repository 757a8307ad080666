"""The lab's operations against float64, and its worker's task on the CPU and on a GPU."""

from __future__ import annotations

import queue
import threading

import pytest
import torch

from explorer.engine import lab_operations
from explorer.engine.lab import Lab
from explorer.engine.lab_operations import prepare
from explorer.messages import Bench, Benched, Event, RunEnded
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.lab import OPERATIONS, Case, LabRow, Shape

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0, triton_problem="no CUDA device")
SHAPES: dict[str, Shape] = {"RC": (6, 16), "RDV": (6, 16, 40), "BHTD": (2, 2, 20, 16), "N": (32,)}
COMPARED = [
    (name, variant)
    for name, operation in OPERATIONS.items()
    for variant in operation.variants
    if name not in ("attention_support", "layout", "item") and variant not in ("compile", "graph", "efficient", "cudnn")
]


def case_of(name: str, dtype: str = "float32") -> Case:
    return Case(operation=name, dtype=dtype, shape=SHAPES[OPERATIONS[name].dimensions])  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "variant"), COMPARED)
def test_that_each_variant_computes_what_float64_does(name: str, variant: str) -> None:
    prepared = prepare(case_of(name), variant, torch.device("cpu"))  # our own kernels are interpreted here
    assert prepared.error is not None
    with prepared.around():
        prepared.call()  # a backward pass must be there to be called again
        # Largest measured: 2.3e-7.
        assert prepared.error(prepared.call()) < 1e-6


@pytest.mark.parametrize("name", ["gelu", "gelu_backward"])
def test_that_an_operation_that_is_one_percent_off_has_that_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right = lab_operations._torch_gelu
    monkeypatch.setattr(lab_operations, "_torch_gelu", lambda x: right(x) * 1.01)
    prepared = prepare(case_of(name), "torch", torch.device("cpu"))
    assert prepared.error is not None
    assert prepared.error(prepared.call()) == pytest.approx(0.01, rel=1e-3)


def test_that_of_many_rows_the_first_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_operations, "CHECKED_ROWS", 4)
    monkeypatch.setattr(lab_operations, "CHECKED_LOGITS", 4)
    for name in ("layer_norm", "layer_norm_backward", "bias_gelu_backward", "linear_cross_entropy"):
        prepared = prepare(case_of(name), "torch", torch.device("cpu"))
        assert prepared.error is not None
        assert prepared.error(prepared.call()) < 1e-6


def benched(device: DeviceInfo, case: Case, *variants: str) -> tuple[list[LabRow], RunEnded]:
    events: list[Event] = []
    here = Environment(devices=(device,), platform="Linux", python="3.11", explorer="1")
    bench = Bench(run_id=7, device=device.id, case=case, variants=variants, quick=True)
    Lab(bench, threading.Event(), queue.SimpleQueue(), events.append, here).serve()
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    return [event.row for event in events if isinstance(event, Benched)], ended


def test_that_a_case_gives_a_row_a_variant_with_its_figures() -> None:
    rows, ended = benched(CPU, case_of("bias_gelu"), "hf", "triton", "torch")
    assert [(row.variant, row.outcome) for row in rows] == [
        ("hf", "measured"),
        ("triton", "refused"),
        ("torch", "measured"),
    ]
    assert "need a CUDA device" in rows[1].problem
    for row in (rows[0], rows[2]):
        assert row.time_us > 0
        assert row.n >= 5
        assert row.timed_by == "host clock"
        assert 0 < row.rel_error < 1e-6
        assert row.copy_gb_per_s > 0
    assert ended.outcome == "completed"


def test_that_a_kernel_that_is_not_there_is_refused_and_the_others_go_on() -> None:
    rows, _ = benched(CPU, case_of("attention_support"), "efficient", "flash")
    assert [row.outcome for row in rows] == ["refused", "runs"]


def test_that_our_own_kernels_are_refused_on_a_cpu_and_the_others_go_on() -> None:
    rows, _ = benched(CPU, case_of("gelu"), "triton", "torch")
    assert [row.outcome for row in rows] == ["refused", "measured"]
    assert "need a CUDA device" in rows[0].problem


def test_that_a_variant_that_fails_ends_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("an illegal memory access\nand much more")

    monkeypatch.setattr(lab_operations, "_torch_gelu", broken)
    rows, ended = benched(CPU, case_of("gelu"), "torch", "hf")
    assert [(row.outcome, row.problem) for row in rows] == [("failed", "RuntimeError: an illegal memory access")]
    assert ended.problem is None


def test_that_what_does_not_fit_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(lab_operations, "_torch_gelu", full)
    rows, _ = benched(CPU, case_of("gelu"), "torch", "hf")
    assert [row.outcome for row in rows] == ["out of memory", "measured"]


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "attention_support"])
def test_that_every_variant_runs_on_the_gpu_and_is_no_faster_than_its_limits(name: str) -> None:
    from explorer.engine.device import environment

    device = environment().devices[0]
    # Far more than the L2 cache holds: of less, a copy is no ceiling.
    shape = {"RC": (65536, 768), "RDV": (1024, 256, 5000), "BHTD": (2, 4, 512, 64), "N": (256,)}
    case = Case(operation=name, dtype="bfloat16", shape=shape[OPERATIONS[name].dimensions])
    rows, _ = benched(device, case, *OPERATIONS[name].variants)
    assert {(row.variant, row.outcome, row.problem) for row in rows} == {
        (variant, "measured", "") for variant in OPERATIONS[name].variants
    }
    for row in rows:
        wall = name in ("small_operations", "item")
        assert row.timed_by == ("wall" if wall else "graph")
        assert wall or row.host_us > 0
        assert row.peak_bytes >= 0
        assert not row.rel_error > 0.05  # NaN where nothing is compared
        assert not row.ceiling_fraction > 1.1
