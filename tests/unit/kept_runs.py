"""Runs and comparisons to keep in a store. Imported by this folder's tests."""

import numpy as np

from explorer.config import RunConfig
from explorer.results.blocks import Block
from explorer.results.comparison_record import ComparisonRecord
from explorer.results.environment import DeviceInfo, Environment, Finding
from explorer.results.log import RunLog, RunRecord
from explorer.results.sample import Sample, Segment
from explorer.results.store import Store

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=2**37, capability=(9, 0), bf16=True)
HERE = Environment(
    devices=(GPU, DeviceInfo(id="cpu", kind="cpu", name="A processor", total_memory_bytes=2**34)),
    platform="Linux",
    python="3.12.3",
    explorer="0.1.0",
    torch="2.11.0+cu130",
    findings=(Finding(severity="note", text="no datasets"),),
)
CONFIG = RunConfig(device="cuda:0", seed=7, prompt="naïve 🙂 'q'").with_level("precision", "bf16")
TOGGLES = {"precision": "fp32"}


def samples(first: int, count: int, segment: int = 0) -> list[Sample]:
    rng = np.random.default_rng(first)
    return [
        Sample(
            step=i,
            segment=segment,
            phase=("compile", "warmup", "steady", "prefill")[i % 4],
            time_s=i / 3,
            tokens=8192,
            step_ms=float(rng.lognormal(3, 1)),
            loss=float("nan") if i % 5 == 0 else float(rng.normal()),
            grad_norm=float("inf") if i % 7 == 0 else 1.5,
            skipped=i % 3 == 0,
            peak_allocated_bytes=2**40 + i,
        )
        for i in range(first, first + count)
    ]


def begun(number: int = 1) -> tuple[RunLog, RunRecord]:
    log = RunLog()
    log.set_environment(HERE)
    record = log.begin_run(number, CONFIG)
    first = Segment(
        index=0,
        first_step=0,
        changes=(),
        started_at="2026-01-02T03:04:05Z",
        flop_per_token=855e6,
        ceiling_tflop_per_s=712.5,
    )
    log.begin_segment(number, CONFIG, first)
    log.append(number, samples(0, 40))
    log.append_text(number, "Once ")
    log.note(number, "another process holds 3.0 GiB")
    log.mark(number, "pause: profile")
    return log, record


def compared(a: RunRecord, b: RunRecord, pairs: int = 9) -> ComparisonRecord:
    """A comparison in which B is about 1.25x as fast."""
    comparison = ComparisonRecord(
        run_uids=(a.uid, b.uid), names=("fp32", "bf16"), floor=0.005, floor_measured=False, beside={"parity": "kept"}
    )
    rng = np.random.default_rng(pairs)
    for pair in range(pairs):
        for arm, step_ms in ((0, 50.0), (1, 40.0)):
            clock = float("nan") if pair == 0 else 1980.0
            comparison.blocks.add(arm, pair, Block(step_ms=step_ms * float(rng.normal(1, 0.01)), sm_clock_mhz=clock))
    comparison.ended_by = "budget"
    return comparison


def assert_equal(seen: RunRecord, record: RunRecord) -> None:
    for name in (
        "uid",
        "started_at",
        "config",
        "reference",
        "environment",
        "segments",
        "text",
        "outcome",
        "problem",
        "notes",
        "ways_out",
        "failure",
        "marks",
    ):
        assert getattr(seen, name) == getattr(record, name), name
    assert len(seen.columns) == len(record.columns)
    for name, column in record.columns.columns().items():
        np.testing.assert_array_equal(seen.columns.column(name), column, err_msg=name)


def ended(store: Store, number: int) -> RunRecord:
    log, record = begun(number)
    log.end(number, "completed")
    store.keep([record])
    return record
