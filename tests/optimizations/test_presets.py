"""Presets: what they set, and that a device gets only what it can run."""

from __future__ import annotations

import argparse

import pytest
from toggle_bench import CPU

from explorer import cli_config
from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.presets import PRESETS, with_preset
from explorer.results.environment import DeviceInfo

HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, capability=(9, 0), bf16=True)
TURING = DeviceInfo(
    id="cuda:0", kind="cuda", name="T4", total_memory_bytes=0, capability=(7, 5), triton_problem="no triton"
)


def test_that_every_preset_names_levels_that_exist() -> None:
    for wanted in PRESETS.values():
        for toggle, levels in wanted:
            for level in levels:
                registry.by_name(toggle).level(level)


@pytest.mark.parametrize("device", [HOPPER, TURING, CPU], ids=lambda device: device.name)
@pytest.mark.parametrize("workload", ["train", "generate"])
@pytest.mark.parametrize("name", PRESETS)
def test_that_a_preset_asks_only_for_what_runs(name: str, workload: str, device: DeviceInfo) -> None:
    before = RunConfig(workload=workload, batch=4, levels=(("checkpointing", "all"),))
    config = with_preset(before, name, device)
    assert not registry.problems(config, device)
    assert config.level("checkpointing") is None
    assert (config.workload, config.batch) == (workload, 4)


def test_that_a_preset_takes_the_best_level_that_the_device_can_do() -> None:
    def levels(name: str, device: DeviceInfo, workload: str = "train") -> dict[str, str]:
        return dict(with_preset(RunConfig(workload=workload), name, device).levels)

    assert levels("baseline", HOPPER) == {}
    assert levels("framework", HOPPER) == {"precision": "bf16", "optimizer": "fused"}
    assert levels("framework", TURING) == {"precision": "fp16", "optimizer": "fused"}
    assert levels("framework", HOPPER, "generate") == {"weight_dtype": "bf16", "precision": "tf32"}
    system = levels("system", HOPPER)
    assert system.items() > levels("algorithm", HOPPER).items() > levels("framework", HOPPER).items()
    assert (system["gelu"], system["loss_impl"], system["layer_norm"]) == ("triton", "fused", "triton")
    on_cpu = levels("system", CPU)
    assert (on_cpu["gelu"], on_cpu["loss_impl"]) == ("torch", "chunked")
    assert "layer_norm" not in on_cpu
    everything = levels("everything", HOPPER)
    assert (everything["compile"], everything["cuda_graph"]) == ("model", "on")
    assert not {"compile", "cuda_graph"} & levels("everything", CPU).keys()


def test_that_the_command_line_sets_a_preset_and_then_what_is_set_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_config, "_device", lambda name: HOPPER)
    parser = argparse.ArgumentParser()
    cli_config.add_config(parser)
    args = parser.parse_args(["--preset", "framework", "--set", "precision=fp16", "--set", "gelu=torch"])
    assert dict(cli_config.config_from(args).levels) == {"precision": "fp16", "optimizer": "fused", "gelu": "torch"}


def test_that_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'fastest'; allowed: baseline, framework, algorithm, system, everything"):
        with_preset(RunConfig(), "fastest", CPU)
