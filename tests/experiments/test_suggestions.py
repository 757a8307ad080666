"""What an experiment is of where nothing is named."""

from __future__ import annotations

import dataclasses

from explorer.config import RunConfig
from explorer.experiments.attribution import settings
from explorer.experiments.ladder import check_ladder
from explorer.experiments.suggestions import batches, factorial, rungs, seqs, without_toggles
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo

GPU = DeviceInfo(
    id="cuda:0", kind="cuda", name="GPU", total_memory_bytes=80 * 2**30, capability=(9, 0), bf16=True, driver="580.1"
)
CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0, bf16=True, triton_problem="for GPUs only")
SET = RunConfig(levels=(("attention", "sdpa"), ("gelu", "triton"), ("precision", "bf16"), ("dropout", "off")))


def test_that_the_toggles_that_are_set_are_the_rungs_in_the_panels_order_over_a_bare_baseline() -> None:
    base = without_toggles(dataclasses.replace(SET, sample_every=10, batch=4))
    assert (base.levels, base.sample_every, base.batch) == ((("dropout", "off"),), 0, 4)
    found = rungs(SET, GPU)
    assert [one.name for one in found] == ["precision=bf16", "attention=sdpa", "gelu=triton"]
    check_ladder(base, found, GPU)


def test_that_where_nothing_is_set_the_ladder_is_of_what_the_device_can_do() -> None:
    for device in (GPU, CPU):
        found = rungs(RunConfig(device=device.id), device)
        assert len(found) >= 3
        check_ladder(without_toggles(RunConfig()), found, device)
    assert "gelu=triton" not in {one.name for one in rungs(RunConfig(), CPU)}


def test_that_what_cannot_run_here_is_left_out() -> None:
    assert [one.name for one in rungs(SET, CPU)] == ["precision=bf16", "attention=sdpa"]


def test_that_an_attribution_is_of_toggles_that_run_in_every_combination() -> None:
    many = SET.with_level("compile", "model").with_level("cuda_graph", "on")
    found = factorial(many, GPU)
    assert len(found) == 3
    for config in settings(without_toggles(many), found).values():
        assert not registry.problems(config, GPU)


def test_that_a_sweep_is_of_powers_of_two_and_of_parts_of_the_longest_length() -> None:
    assert list(batches(GPU)) == [1, 2, 4, 8, 16, 32, 64]
    assert list(batches(CPU)) == [1, 2, 4, 8]
    assert list(seqs(RunConfig(model="gpt2"))) == [256, 512, 1024]
