"""What is said of runs whose figures were made by hand; every verdict was worked out on paper."""

from __future__ import annotations

import math
from typing import Any

import pytest

from explorer.config import RunConfig
from explorer.results.diagnosis import CURES, WARMS_UP, WHY_NOT_ALL, Cause, Diagnosis, diagnosis
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.log import RunLog, RunRecord
from explorer.results.proof import Kernel, Profile
from explorer.results.sample import Sample, Segment

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="Big GPU", total_memory_bytes=80 * 2**30)
GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)>(int)"


def run_of(count: int = 20, *, device: str = "cuda:0", problem: str | None = None, **fields: Any) -> RunRecord:
    """A run whose steps took 40 ms, and are as ``fields`` say: values, or functions of a step's number."""
    config = RunConfig(device=device, **{name: fields.pop(name) for name in ("workload", "batch") if name in fields})
    log = RunLog()
    here = Environment(devices=(GPU,), platform="Linux", python="3.11", explorer="0")
    log.set_environment(here)
    record = log.begin_run(1, config)
    segment = Segment(
        index=0, first_step=0, changes=(), started_at="2026-01-01", flop_per_token=10**9, ceiling_tflop_per_s=800.0
    )
    log.begin_segment(1, config, segment)
    values = {"host_ms": 10.0, "data_wait_ms": 0.1, "loss": 2.0, "grad_norm": 1.0} | fields
    steps = []
    for step in range(count):
        own = {name: value(step) if callable(value) else value for name, value in values.items()}
        steps.append(
            Sample(
                step=step, segment=0, time_s=step * 0.04, tokens=8192, **({"phase": "steady", "step_ms": 40.0} | own)
            )
        )
    log.append(1, steps)
    log.end(1, "failed" if problem else "completed", problem)
    return record


def profile(
    *kernels: tuple[str, int, float], busy_ms: float = math.nan, launches: int | None = 1000, **fields: Any
) -> Profile:
    """A step of 40 ms with ``kernels``: name, count and ms in all."""
    values: dict[str, Any] = {"device": "cpu" if launches is None else "cuda", "workload": "train", "steps": 1}
    made = tuple(Kernel(name=name, count=count, total_us=ms * 1e3) for name, count, ms in kernels)
    return Profile(
        kernels=made,
        step_ms=40.0,
        busy_ms=busy_ms,
        launches=launches,
        operators=(),
        products=(),
        attention_softmax=(),
        block_forwards=(),
        **(values | fields),
    )


def causes(found: Diagnosis) -> list[Cause]:
    return [finding.cause for finding in found.findings]


def only(found: Diagnosis) -> str:
    (finding,) = found.findings
    return finding.text


def test_that_a_gpu_that_idles_is_launch_bound_with_its_share() -> None:
    found = diagnosis(run_of(), profile((GEMM, 500, 12.4), (GELU, 500, 4.0), busy_ms=16.4))
    assert only(found) == (
        "launch-bound: the GPU was busy 41% of the time; in the rest it waited for Python, which made 1000 launches in "
        "40.00 ms"
    )
    assert found.unknown == ()


def test_that_kernels_as_short_as_their_launch_are_told_as_a_size_too_small() -> None:
    # 4 ms in 1000 kernels: 4 us each.
    found = diagnosis(run_of(), profile((GEMM, 600, 3.0), (GELU, 400, 1.0), busy_ms=4.0))
    assert causes(found) == ["launch", "small"]
    assert "a kernel ran 4.0 µs on average" in found.findings[1].text


def test_that_a_busy_gpu_is_memory_bound_where_products_are_the_smaller_part() -> None:
    found = diagnosis(run_of(), profile((GELU, 48, 27.0), (GEMM, 300, 9.0), busy_ms=38.0))
    assert only(found) == (
        "memory-bound: the GPU was busy 95% of the time, only 25% of that with matrix products; the rest moves data, "
        "most in GeluCUDAKernelImpl (27.00 ms)"
    )


def test_that_a_busy_gpu_is_compute_bound_where_products_are_the_larger_part() -> None:
    found = diagnosis(run_of(), profile((GELU, 48, 9.0), (GEMM, 300, 27.0), busy_ms=38.0))
    # 8192 tokens of 10^9 FLOP in 40 ms: 204.8 TFLOP/s, of 800.
    assert only(found) == (
        "compute-bound: the GPU was busy 95% of the time, 75% of that with matrix products, at 26% of what it was seen "
        "to do at best"
    )


@pytest.mark.parametrize(("batch", "cause"), [(1, "memory"), (99, "memory"), (128, "compute")])
def test_that_writing_a_few_texts_at_once_reads_weights_and_many_compute(batch: int, cause: Cause) -> None:
    record = run_of(workload="generate", batch=batch, data_wait_ms=math.nan)
    found = diagnosis(record, profile((GEMM, 300, 38.0), busy_ms=38.0, workload="generate"))
    assert causes(found) == [cause]


def test_that_waiting_for_batches_while_the_gpu_idles_is_data_bound() -> None:
    record = run_of(data_wait_ms=25.0)
    found = diagnosis(record, profile((GEMM, 300, 14.0), busy_ms=14.0))
    assert only(found) == (
        "data-bound: a step waited 25.0 of 40.0 ms for its batch (62%), and the GPU was busy 35% of the time"
    )


@pytest.mark.parametrize(
    ("waited_ms", "busy_ms", "cause"),
    [
        (25.0, 36.0, "compute"),  # a copy from pageable memory waits for the GPU, which has work all the while
        (9.0, 10.0, "launch"),  # 22% of the step is less than half of the 75% that the GPU had nothing to do
        (7.9, 36.0, "compute"),
    ],
)
def test_that_waiting_for_batches_is_not_blamed_for_what_it_did_not_cost(
    waited_ms: float, busy_ms: float, cause: Cause
) -> None:
    record = run_of(data_wait_ms=waited_ms)
    assert causes(diagnosis(record, profile((GEMM, 300, busy_ms), busy_ms=busy_ms))) == [cause]


def test_that_waits_of_the_host_come_first_where_the_gpu_idles_and_last_where_it_does_not() -> None:
    record = run_of(synchronizations=2)
    idle = diagnosis(record, profile((GEMM, 300, 16.0), busy_ms=16.0))
    assert causes(idle) == ["waits", "launch"]
    assert idle.findings[0].text == (
        "each step made Python wait for the GPU 2 times, so that it could not launch ahead"
    )
    assert causes(diagnosis(record, profile((GEMM, 300, 38.0), busy_ms=38.0))) == ["compute", "waits"]
    assert "wait for the GPU once," in diagnosis(run_of(synchronizations=1)).findings[0].text


@pytest.mark.parametrize(("host_ms", "cause"), [(10.0, "device"), (39.0, "host")])
def test_that_timings_alone_tell_who_was_ahead_and_what_is_not_known(host_ms: float, cause: Cause) -> None:
    found = diagnosis(run_of(host_ms=host_ms))
    assert causes(found) == [cause]
    assert f"{host_ms + 0.1:.1f} of 40.0 ms" in only(found)
    assert found.unknown == ("what filled the steps: none was profiled",)


def test_that_a_cpu_says_what_it_cannot_know() -> None:
    record = run_of(device="cpu", data_wait_ms=0.1)
    bare = diagnosis(record)
    assert bare.findings == ()
    assert bare.unknown == ("what filled the steps: none was profiled", WHY_NOT_ALL)
    found = diagnosis(record, profile(("aten::addmm", 50, 30.0), ("aten::mul", 60, 10.0), launches=None))
    assert only(found) == "compute-bound: matrix products took 75% of the time"
    assert found.unknown == (WHY_NOT_ALL,)
    slow = diagnosis(record, profile(("aten::addmm", 50, 10.0), ("aten::mul", 60, 30.0), launches=None))
    assert only(slow) == (
        "memory-bound: matrix products took 25% of the time; the rest moves data, most in aten::mul (30.00 ms)"
    )
    assert causes(diagnosis(run_of(device="cpu", data_wait_ms=20.0))) == ["data"]


def test_that_memory_that_grows_from_step_to_step_is_named_with_its_size() -> None:
    for count in (40, 33, 9, 8):  # 4 quarters of one length, or not
        grows = run_of(count, peak_allocated_bytes=lambda step: 2**30 + step * 64 * 2**20)
        assert diagnosis(grows).findings[0].text.startswith("memory grew by 64.0 MiB a step: ")
    for steady in (lambda step: 2**30, lambda step: 2**30 + step % 2 * 2**28, lambda step: -1):
        assert "growth" not in causes(diagnosis(run_of(40, peak_allocated_bytes=steady)))
    assert "growth" not in causes(diagnosis(run_of(7, peak_allocated_bytes=lambda step: step * 2**30)))
    texts = run_of(40, workload="generate", peak_allocated_bytes=lambda step: step * 2**26)
    assert "growth" not in causes(diagnosis(texts)), "a cache grows, and should"


def test_that_a_loss_that_is_no_number_comes_first_with_the_norms_before_it() -> None:
    record = run_of(
        100,
        loss=lambda step: 2.0 if step < 90 else math.nan,
        grad_norm=lambda step: float(step + 1) if step < 90 else math.nan,
    )
    found = diagnosis(record, profile((GEMM, 300, 38.0), busy_ms=38.0))
    assert causes(found) == ["loss", "compute"]
    assert found.findings[0].text.startswith(
        "step 90: the loss is nan, after a gradient norm of 90, at a learning rate"
    )
    assert len(found.norms) == 60
    assert found.norms[0] == (31, 32.0)
    assert found.norms[-2] == (89, 90.0)
    assert found.norms[-1][0] == 90


def test_that_a_failed_run_says_why_first_also_without_a_step() -> None:
    words = "Out of memory: batch 512 x 1024 tokens does not fit"
    assert diagnosis(run_of(problem=words)).findings[0].text == words
    log = RunLog()
    record = log.begin_run(1, RunConfig())
    log.end(1, "failed", words)
    assert only(diagnosis(record)) == words


def test_that_every_cause_has_its_cure_or_says_it_itself() -> None:
    assert all(not words or words.endswith(".") for words in CURES.values())
    assert {cause for cause, words in CURES.items() if not words} == {"failed", "loss", "device", "host"}


def test_that_a_run_that_still_goes_is_judged_by_its_newest_steps_once_it_is_warm() -> None:
    record = run_of(300, device="cpu", data_wait_ms=lambda step: 20.0 if step < 200 else 0.0)
    assert causes(diagnosis(record)) == ["data"]
    assert causes(diagnosis(record, newest=100)) == []
    record.outcome = "running"
    assert causes(diagnosis(record, newest=250)) == ["data"], "150 of them waited"
    cold = run_of(20, device="cpu", data_wait_ms=20.0, phase="warmup")
    assert causes(diagnosis(cold)) == ["data"]
    cold.outcome = "running"
    assert (diagnosis(cold).findings, diagnosis(cold).unknown) == ((), (WARMS_UP,))


def test_that_an_old_loss_that_was_no_number_is_found_however_long_the_run_went_on() -> None:
    record = run_of(30_000, loss=lambda step: 2.0 if step < 5 else math.nan)
    assert "step 5: the loss is nan, after a gradient norm of 1" in diagnosis(record, newest=100).findings[0].text


def test_that_a_finding_is_told_in_other_words_with_its_own_numbers() -> None:
    (found,) = diagnosis(run_of(device="cpu", data_wait_ms=20.0)).findings
    assert found.text == "data-bound: a step waited 20.0 of 40.0 ms for its batch (50%)"
    said = found.told(lambda words, **values: "{share:.0%} von {step_ms:.1f}".format(**values))
    assert said == "50% von 40.0"
    failed = diagnosis(run_of(problem="it says {this}")).findings[0]
    assert failed.text == "it says {this}"
