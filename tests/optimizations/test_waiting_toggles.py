"""Batches that everything waits for, and losses read in each step: how they are counted, proven and exported."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any, Literal

import pytest
import torch
from toggle_bench import OperatorLog, run_of, small_gpt2
from toggle_bench import tokens as some_tokens
from waits import watched_waits

from explorer.config import RunConfig
from explorer.engine.data import Batches
from explorer.engine.session import Session
from explorer.engine.telemetry import Telemetry
from explorer.engine.trace import read_profile
from explorer.engine.training import TrainingLoop
from explorer.optimizations import registry
from explorer.optimizations.base import DataLoading
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Profile, Uploads
from explorer.results.sample import Sample

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0)
BATCH_BYTES = 2 * 16 * 8


def event(kind: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def read(*events: dict[str, Any], device: Literal["cuda", "cpu"] = "cuda") -> Profile:
    kernel = event("kernel", "gemm", 5.0, 1.0, 9, correlation=3)
    return read_profile(
        [kernel, *events],
        device=device,
        workload="train",
        steps=1,
        step_ms=1.0,
        blocks=0,
        width=32,
        vocabulary=96,
        own_kernels=frozenset(),
        tf32_allowed=False,
        batch_bytes=BATCH_BYTES,
    )


def shown(name: str, profile: Profile) -> set[str]:
    return {level for level, judge in registry.by_name(name).proof.items() if judge(profile).shown}


def upload(source: str, size: int = BATCH_BYTES) -> dict[str, Any]:
    return event("gpu_memcpy", f"Memcpy HtoD ({source} -> Device)", 20.0, 1.0, 9, bytes=size)


PIN = event("cpu_op", "aten::pin_memory", 1.0, 1.0)


@pytest.mark.parametrize(
    ("events", "level"),
    [
        ([upload("Pinned")], "prefetch"),
        ([upload("Pinned"), PIN], "pinned"),
        ([upload("Pageable")], "pageable"),
        ([upload("Pinned"), upload("Pageable", 4)], "prefetch"),  # four bytes are no batch
        ([upload("Pinned"), upload("Pageable")], None),
        ([], None),
    ],
)
def test_that_a_profile_tells_how_its_batch_came(events: list[dict[str, Any]], level: str | None) -> None:
    assert shown("data_loading", read(*events)) == ({level} if level else set())


def test_that_copies_are_counted_by_source_and_size() -> None:
    profile = read(upload("Pinned"), upload("Pinned"), upload("Pageable", 4), event("gpu_memcpy", "Memcpy DtoH", 1, 1))
    assert profile.uploads == (
        Uploads(source="pageable", bytes=4, count=1),
        Uploads(source="pinned", bytes=BATCH_BYTES, count=2),
    )


def reading(ts: float, *, tid: int = 1, waits: bool = True, wait_tid: int = 1) -> list[dict[str, Any]]:
    found = [event("cpu_op", "aten::_local_scalar_dense", ts, 10.0, tid)]
    if waits:
        found.append(event("cuda_runtime", "cudaStreamSynchronize", ts + 3, 5.0, wait_tid, correlation=9))
    return found


SCALER = event("cpu_op", "aten::_amp_foreach_non_finite_check_and_unscale_", 1.0, 1.0)
FUSED = event("cpu_op", "aten::_fused_adamw_", 3.0, 1.0)


@pytest.mark.parametrize(
    ("events", "reads", "level"),
    [
        ([], 0, "off"),
        (reading(100), 1, "on"),
        (reading(100, waits=False), 0, "off"),  # AdamW's step counts lie on the host
        (reading(100, wait_tid=2), 0, "off"),
        ([event("cuda_runtime", "cudaStreamSynchronize", 50, 5.0, correlation=9)], 0, "off"),  # a copy's
        ([SCALER, *reading(100)], 1, "off"),
        ([SCALER, *reading(100), *reading(200)], 2, "on"),
        ([SCALER, FUSED, *reading(100)], 1, "on"),
    ],
)
def test_that_a_profile_tells_whether_a_loss_was_read(events: list[dict[str, Any]], reads: int, level: str) -> None:
    profile = read(*events)
    assert profile.device_reads == reads
    assert shown("sync_every_step", profile) == {level}


def test_that_a_cpu_proves_neither_copies_nor_waiting() -> None:
    profile = read(event("cpu_op", "aten::mm", 1.0, 1.0, **{"Input Dims": [[2, 2], [2, 2]]}), device="cpu")
    assert shown("data_loading", profile) == {"prefetch"}
    assert shown("sync_every_step", profile) == {"off"}


def one_step(**fields: Any) -> tuple[Sample, int]:
    """A step's sample, and how often the host asked for a number in it."""
    run = run_of(small_gpt2(), RunConfig(batch=2, seq=16))
    for name, value in fields.items():
        setattr(run, name, value)
    stream = some_tokens(1, 200)[0].numpy()
    telemetry = Telemetry(CPU)
    try:
        with Batches(stream, batch=2, seq=16, seed=0, device=torch.device("cpu")) as batches:
            loop = TrainingLoop(run, batches, telemetry)
            loop.begin_segment(0)
            with OperatorLog() as log:
                loop.step()
            (sample,) = loop.collect(all_of_them=True)
    finally:
        telemetry.close()
    return sample, log.seen["_local_scalar_dense"]


def test_that_waits_of_the_host_are_counted_and_a_loss_is_read_only_where_asked() -> None:
    plain, asked = one_step()
    assert plain.synchronizations == 0
    read_each, asked_then = one_step(reads_every_loss=True)
    assert (read_each.synchronizations, asked_then - asked) == (1, 1)
    assert read_each.loss == plain.loss
    assert one_step(data_loading="pageable")[0].synchronizations == 1
    assert one_step(data_loading="pageable", reads_every_loss=True)[0].synchronizations == 2


def test_that_neither_can_be_asked_for_on_a_cpu() -> None:
    levels = (("data_loading", "pageable"), ("sync_every_step", "on"))
    assert registry.problems(RunConfig(levels=levels), CPU).keys() == {"data_loading", "sync_every_step"}


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("loading", ["prefetch", "pinned", "pageable"])
def test_that_batches_are_the_same_however_they_are_loaded(loading: DataLoading) -> None:
    stream = some_tokens(1, 5000)[0].numpy()
    with (
        Batches(stream, batch=3, seq=64, seed=1, device=torch.device("cpu")) as here,
        Batches(stream, batch=3, seq=64, seed=1, device=torch.device("cuda")) as there,
    ):
        there.next()
        here.next()
        there.load_by(loading)
        received = [(there.next()[0], here.next()[0]) for _ in range(100)]
        assert all(torch.equal(ids.cpu(), expected) for ids, expected in received)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("level", "waits"),
    [({}, 0), ({"data_loading": "pinned"}, 0), ({"data_loading": "pageable"}, 1), ({"sync_every_step": "on"}, 1)],
    ids=str,
)
def test_that_torch_itself_sees_as_many_waits_as_are_counted(level: dict[str, str], waits: int) -> None:
    config = RunConfig(model="mini", device="cuda:0", batch=8, seq=128, levels=tuple(level.items()))
    device = dataclasses.replace(CPU, id="cuda:0", kind="cuda", capability=torch.cuda.get_device_capability())
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        session.begin_segment(0)
        for _ in range(3):
            session.loop.step()
        session.loop.collect(all_of_them=True)
        told = pytest.warns(UserWarning, match="called a synchronizing CUDA operation") if waits else nullcontext()
        with watched_waits("warn"), told:
            session.loop.step()
        (sample,) = session.loop.collect(all_of_them=True)
    assert sample.synchronizations == waits
