"""What is suggested against a cause exists, runs here and is not set already."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from toggle_bench import CPU

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.cures import WANTED, Cure, answers, cures
from explorer.results.diagnosis import Cause
from explorer.results.environment import DeviceInfo

HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, capability=(9, 0), bf16=True)


def said(cause: Cause, device: DeviceInfo = HOPPER, **levels: str) -> list[tuple[str, str]]:
    return [(cure.toggle, cure.level) for cure in cures([cause], RunConfig(levels=tuple(levels.items())), device)]


def test_that_every_cause_names_toggles_and_levels_that_there_are() -> None:
    assert set(WANTED) == set(get_args(Cause))
    for wanted in WANTED.values():
        for name, levels in wanted:
            assert set(levels) <= set(registry.by_name(name).level_ids())


def test_that_a_planted_wait_is_answered_by_taking_it_away() -> None:
    assert said("waits", sync_every_step="on")[0] == ("sync_every_step", "off")
    assert said("data", data_loading="pageable") == [("data_loading", "prefetch")]
    assert said("data") == []
    assert said("waits", precision="fp16") == [("optimizer", "fused")]


def test_that_a_level_that_is_as_good_or_better_is_left() -> None:
    assert ("attention", "causal") in said("memory", attention="sdpa", weight_dtype="fp32")
    assert all(name != "attention" for name, _ in said("memory", attention="causal"))
    assert said("loss", precision="fp16") == [("precision", "bf16")]
    assert said("loss", precision="bf16") == []


def test_that_only_what_runs_beside_the_rest_is_suggested() -> None:
    assert all(name != "cuda_graph" for name, _ in said("launch", precision="fp16"))
    assert ("cuda_graph", "on") in said("launch")
    for cause in get_args(Cause):
        for device in (CPU, HOPPER, dataclasses.replace(HOPPER, triton_problem="no C compiler")):
            for config in (RunConfig(), RunConfig(workload="generate", batch=1)):
                found = cures([cause], config, device)
                assert len(found) <= 3
                for cure in found:
                    flipped = registry.with_level(config, cure.toggle, cure.level)
                    assert flipped != config
                    assert not registry.problems(flipped, device)


@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_causes_are_answered_in_their_order(workload: str) -> None:
    config = RunConfig(workload=workload, levels=(("sync_every_step", "on"),))  # type: ignore[arg-type]
    found = cures(["waits", "launch"], config, HOPPER)
    if workload == "train":
        assert found[0] == Cure(toggle="sync_every_step", level="off")
    else:
        assert found[0] == Cure(toggle="kv_cache", level="static")


def test_that_what_cannot_run_here_is_named_with_its_reason_behind_what_can() -> None:
    found = {cure.toggle: cure for cure in answers("launch", RunConfig(), CPU)}
    assert found["gelu"] == Cure(toggle="gelu", level="torch"), "the second best where the best cannot run"
    assert found["cuda_graph"].level == "on"
    assert "CUDA" in found["cuda_graph"].reason
    assert all(cure.toggle != "cuda_graph" for cure in cures(["launch"], RunConfig(), CPU))
    assert "kv_cache" not in found, "it plays no part in training"
    assert "gelu" not in {cure.toggle for cure in answers("launch", RunConfig(levels=(("gelu", "triton"),)), HOPPER)}
