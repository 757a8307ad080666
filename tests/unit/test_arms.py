"""Two configurations made fit to be compared."""

from __future__ import annotations

import dataclasses

import pytest

from explorer.config import RunConfig
from explorer.experiments.arms import fair, names
from explorer.results.environment import DeviceInfo, Environment

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="GPU", total_memory_bytes=1, capability=(9, 0), bf16=True)
CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=1, bf16=True)
HERE = Environment(devices=(GPU, CPU), platform="Linux", python="3.11", explorer="1", torch="2")
BASE = RunConfig(seed=3)


def test_that_both_have_one_seed_and_no_dropout() -> None:
    other = dataclasses.replace(BASE.with_level("gelu", "torch"), seed=8)
    a, b = fair(BASE, other, here=HERE, keep_dropout=False)
    assert a == BASE.with_level("dropout", "off")
    assert b == BASE.with_level("gelu", "torch").with_level("dropout", "off")


def test_that_dropout_is_left_where_it_is_compared_or_kept() -> None:
    off = BASE.with_level("dropout", "off")
    assert fair(BASE, off, here=HERE, keep_dropout=False) == (BASE, off)
    assert fair(BASE, BASE, here=HERE, keep_dropout=True) == (BASE, BASE)
    writes = RunConfig(workload="generate")
    assert fair(writes, writes, here=HERE, keep_dropout=False) == (writes, writes)


def test_that_auto_is_the_device_that_it_stands_for() -> None:
    on_gpu = dataclasses.replace(BASE, device="cuda:0")
    a, b = fair(BASE, on_gpu, here=HERE, keep_dropout=True)
    assert a.device == b.device == "auto"
    with pytest.raises(ValueError, match="A is for cuda:0 and B for cpu; compare on one device"):
        fair(BASE, dataclasses.replace(BASE, device="cpu"), here=HERE, keep_dropout=True)
    with pytest.raises(ValueError, match="A is for auto and B for cuda:0"):
        fair(BASE, on_gpu, here=None, keep_dropout=True)


def test_that_workloads_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="A is to train and B to generate"):
        fair(BASE, RunConfig(workload="generate"), here=HERE, keep_dropout=False)


def test_that_b_is_called_by_what_differs_from_a() -> None:
    a = BASE.with_level("precision", "bf16")
    b = dataclasses.replace(a.with_level("attention", "sdpa"), batch=16)
    assert names((a, b)) == ("+ precision bf16", "attention naive -> sdpa, batch 8 -> 16")
    assert names((BASE, BASE)) == ("fp32 baseline", "fp32 baseline again")
