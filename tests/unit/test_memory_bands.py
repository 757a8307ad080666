"""The bands of memory and what they miss, by hand."""

import dataclasses

import numpy as np
import pytest

from explorer.results.environment import DeviceInfo
from explorer.results.memory import bands_problem, cached_bytes, unexplained_bytes
from explorer.results.ring import as_columns
from explorer.results.sample import Sample
from explorer.results.statistics import summary

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="GPU", total_memory_bytes=1000)


def sample(step: int, **fields: int) -> Sample:
    return Sample(step=step, segment=0, phase="steady", time_s=step * 0.05, tokens=10, step_ms=50.0, **fields)


FULL = {
    "peak_allocated_bytes": 60,
    "reserved_bytes": 100,
    "device_used_bytes": 150,
    "context_bytes": 30,
    "other_processes_bytes": 15,
    "driver_reserved_bytes": 9,
}


def test_that_what_is_left_over_leaves_the_drivers_reserve_out():
    columns = as_columns([sample(0, **FULL), sample(1, **FULL | {"other_processes_bytes": 40})])
    assert cached_bytes(columns).tolist() == [40, 40]
    assert unexplained_bytes(columns).tolist() == [5, -20]


@pytest.mark.parametrize("name", ["reserved_bytes", "device_used_bytes", "context_bytes", "other_processes_bytes"])
def test_that_nothing_is_left_over_of_what_was_not_measured(name):
    columns = as_columns([sample(0, **FULL | {name: -1})])
    assert np.isnan(unexplained_bytes(columns)).all()
    assert summary(columns).memory_unexplained_bytes is None


def test_that_a_segment_has_the_largest_bands_and_the_median_of_what_they_miss():
    used = [150, 151, 150, 400, 149]  # one reading in which another process came and went
    others = [15, 15, 15, 15, 16]
    columns = as_columns(
        [
            sample(i, **FULL | {"device_used_bytes": u, "other_processes_bytes": o})
            for i, (u, o) in enumerate(zip(used, others, strict=True))
        ]
    )
    figures = summary(columns)
    assert (figures.context_bytes, figures.other_processes_bytes, figures.driver_reserved_bytes) == (30, 16, 9)
    assert figures.memory_unexplained_bytes == 5


def test_that_the_reason_for_missing_bands_is_said():
    assert bands_problem(GPU, told=True) is None
    assert "WSL2" in (bands_problem(GPU, told=False) or "")
    absent = dataclasses.replace(GPU, nvml_problem="NVML did not open (driver not loaded)")
    assert "driver not loaded" in (bands_problem(absent, told=False) or "")
    assert "resident" in (bands_problem(dataclasses.replace(GPU, kind="cpu"), told=False) or "")
