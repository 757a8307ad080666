"""Presets: what they set, and that a device gets only what it can run."""

from __future__ import annotations

import argparse
import dataclasses

import pytest
from toggle_bench import CPU

from explorer import cli_config
from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.presets import PRESETS, LeftOut, with_levels, with_preset
from explorer.results.environment import DeviceInfo

HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H200", total_memory_bytes=0, capability=(9, 0), bf16=True)
TURING = DeviceInfo(
    id="cuda:0", kind="cuda", name="T4", total_memory_bytes=0, capability=(7, 5), triton_problem="no triton"
)


def test_that_every_preset_names_levels_that_exist() -> None:
    for by_workload in PRESETS.values():
        for workload, wanted in by_workload.items():
            for toggle, levels in wanted:
                assert workload in registry.by_name(toggle).workloads
                for level in levels:
                    registry.by_name(toggle).level(level)


@pytest.mark.parametrize("device", [HOPPER, TURING, CPU], ids=lambda device: device.name)
@pytest.mark.parametrize("workload", ["train", "generate"])
@pytest.mark.parametrize("name", PRESETS)
def test_that_a_preset_asks_only_for_what_runs(name: str, workload: str, device: DeviceInfo) -> None:
    before = RunConfig(workload=workload, batch=4, levels=(("checkpointing", "all"),))
    config = with_preset(before, name, device).config
    assert not registry.problems(config, device)
    assert config.level("checkpointing") is None
    assert (config.workload, config.batch) == (workload, 4)


def levels(name: str, device: DeviceInfo, workload: str = "train") -> dict[str, str]:
    return dict(with_preset(RunConfig(workload=workload), name, device).config.levels)


def test_that_a_preset_takes_the_best_level_that_the_device_can_do() -> None:
    assert levels("baseline", HOPPER) == {}
    assert levels("framework", HOPPER) == {"precision": "bf16", "optimizer": "fused"}
    assert levels("framework", TURING) == {"precision": "fp16", "optimizer": "fused"}
    assert levels("framework", HOPPER, "generate") == {"weight_dtype": "bf16"}
    system = levels("system", HOPPER)
    assert system.items() > levels("algorithm", HOPPER).items() > levels("framework", HOPPER).items()
    assert (system["gelu"], system["loss_impl"], system["layer_norm"]) == ("triton", "fused", "triton")
    on_cpu = levels("system", CPU)
    assert (on_cpu["gelu"], on_cpu["loss_impl"]) == ("torch", "chunked")
    assert "layer_norm" not in on_cpu


def test_that_everything_is_what_was_measured_fastest() -> None:
    """Source: assets/RESULTS.md, the first rows of training at B = 8 and of generation."""
    assert levels("everything", HOPPER) == {
        "precision": "bf16",
        "attention": "causal",
        "optimizer": "fused",
        "dropout": "off",
        "vocab_padding": "128",
        "compile": "model",
        "loss_impl": "fused",
        "residual": "bf16",
        "gelu": "triton_bias",
        "qkv_gradient": "joined",
        "cuda_graph": "on",
    }
    assert levels("everything", HOPPER, "generate") == {
        "weight_dtype": "bf16",
        "attention": "sdpa",
        "kv_cache": "static",
        "gelu": "torch",
        "decoder": "triton",
        "decode_graph": "on",
    }


def test_that_what_a_device_cannot_run_is_named_with_what_stands_in_its_place() -> None:
    fitted = with_preset(RunConfig(), "everything", TURING)
    told = {(left.toggle, left.level, left.instead) for left in fitted.left_out}
    assert told == {
        ("precision", "bf16", "fp16"),
        ("gelu", "triton_bias", "torch"),
        ("qkv_gradient", "joined", "torch"),
        ("residual", "bf16", "fp32"),
        ("loss_impl", "fused", "chunked"),
        ("compile", "model", "off"),
        ("cuda_graph", "on", "off"),
    }
    assert LeftOut(toggle="gelu", level="triton_bias", instead="torch", why="no triton") in fitted.left_out
    assert not with_preset(RunConfig(), "everything", HOPPER).left_out
    decoder = with_preset(RunConfig(workload="generate"), "everything", TURING).left_out
    assert ("decoder", "triton", "torch") in {(left.toggle, left.level, left.instead) for left in decoder}
    assert levels("everything", TURING, "generate")["decode_graph"] == "on"


def test_that_a_cpu_gets_no_numbers_of_16_bits_unless_they_are_asked_for() -> None:
    for workload, toggle in (("train", "precision"), ("generate", "weight_dtype")):
        fitted = with_preset(RunConfig(workload=workload), "everything", CPU)
        assert not {level for _, level in fitted.config.levels} & {"bf16", "fp16"}
        (left,) = [left for left in fitted.left_out if left.toggle == toggle]
        assert (left.level, left.instead) == ("bf16", "fp32")
        assert "take a CPU longer" in left.why
    asked = with_levels(RunConfig(), (("precision", "bf16"),), CPU)
    assert (dict(asked.config.levels), asked.left_out) == ({"precision": "bf16"}, ())


def test_that_levels_of_ones_own_are_set_as_far_as_they_can_run() -> None:
    own = (("decoder", "triton"), ("kv_cache", "static"), ("attention", "sdpa"), ("gelu", "torch"))
    before = RunConfig(workload="generate", batch=3, levels=(("weight_dtype", "bf16"),))
    whole = with_levels(before, own, HOPPER)
    assert (whole.config, whole.left_out) == (dataclasses.replace(before, levels=own), ())
    part = with_levels(before, own, TURING)
    assert part.config.levels == (("attention", "sdpa"), ("gelu", "torch"), ("kv_cache", "static"))
    assert part.left_out == (LeftOut(toggle="decoder", level="triton", instead="hf", why="no triton"),)
    # What needs what was left out goes, too.
    half = with_levels(RunConfig(), (("residual", "bf16"), ("precision", "bf16"), ("optimizer", "fused")), TURING)
    assert half.config.levels == (("optimizer", "fused"),)
    with pytest.raises(ValueError, match="no toggle is called 'speed'"):
        with_levels(before, (("speed", "high"),), HOPPER)


def test_that_the_command_line_sets_a_preset_and_then_what_is_set_besides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_config, "_device", lambda name: HOPPER)
    parser = argparse.ArgumentParser()
    cli_config.add_config(parser)
    args = parser.parse_args(["--preset", "framework", "--set", "precision=fp16", "--set", "gelu=torch"])
    assert dict(cli_config.config_from(args).levels) == {"precision": "fp16", "optimizer": "fused", "gelu": "torch"}
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cli_config, "_device", lambda name: TURING)
    cli_config.config_from(args)
    assert "preset framework: precision=fp16 instead of bf16: bfloat16 needs" in capsys.readouterr().err


def test_that_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'fastest'; allowed: baseline, framework, algorithm, system, everything"):
        with_preset(RunConfig(), "fastest", CPU)
