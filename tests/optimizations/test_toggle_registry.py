"""The registry's rules, and what each toggle says of itself."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from toggle_bench import CPU, run_of, small_gpt2

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.base import TIERS
from explorer.results.environment import DeviceInfo
from explorer.results.sample import Sample

AMPERE = DeviceInfo(
    id="cuda:0", kind="cuda", name="A100", total_memory_bytes=0, capability=(8, 0), bf16=True, triton_problem=None
)
TURING = dataclasses.replace(AMPERE, name="T4", capability=(7, 5), bf16=False, triton_problem="no triton")


def test_that_importing_every_toggle_leaves_torch_out() -> None:
    code = (
        "import sys, explorer.optimizations.registry\n"
        "print([m for m in ('torch', 'transformers', 'triton', 'explorer.kernels') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_that_a_wrong_toggle_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'precison'; allowed: precision, "):
        registry.normalised(RunConfig(levels=(("precison", "bf16"),)))


def test_that_a_wrong_level_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'fp8'; allowed: fp32, tf32, fp16, bf16"):
        registry.normalised(RunConfig(levels=(("precision", "fp8"),)))


def test_that_settings_that_mean_the_same_compare_equal() -> None:
    spelled_out = RunConfig(levels=(("gelu", "hf"), ("precision", "bf16"), ("attention", "naive")))
    assert registry.normalised(spelled_out) == registry.with_level(RunConfig(), "precision", "bf16")
    assert registry.with_level(spelled_out, "precision", "fp32").level("precision") is None
    assert registry.levels_of(RunConfig(levels=(("gelu", "torch"),))) == {
        **registry.baseline_levels(),
        "gelu": "torch",
    }


def problems(device: DeviceInfo, workload: str = "train", **levels: str) -> dict[str, str]:
    return dict(registry.problems(RunConfig(workload=workload, levels=tuple(levels.items())), device))


def test_that_a_level_is_refused_without_what_it_needs_beside_it() -> None:
    assert problems(AMPERE, attention="flash") == {
        "attention": "FlashAttention computes in 16 bits only (precision is fp32; needed: fp16 or bf16)"
    }
    assert problems(CPU, attention="naive_half").keys() == {"attention"}
    for half in ("fp16", "bf16"):
        assert problems(AMPERE, attention="flash", precision=half) == {}


def test_that_a_need_is_asked_only_in_its_workload() -> None:
    assert (
        "sixteenths (dropout is gpt2; needed: off)"
        in problems(AMPERE, attention="cudnn", precision="bf16")["attention"]
    )
    assert problems(AMPERE, attention="cudnn", precision="bf16", dropout="off") == {}
    assert problems(AMPERE, "generate", attention="cudnn", weight_dtype="bf16") == {}
    assert "weight_dtype is fp32" in problems(AMPERE, "generate", attention="cudnn", precision="bf16")["attention"]


def test_that_what_a_device_cannot_do_is_refused_with_its_reason() -> None:
    assert problems(AMPERE, precision="tf32", gelu="triton", attention="efficient") == {}
    refused = problems(TURING, precision="bf16", gelu="triton", attention="flash")
    assert "8.0 or later (Ampere); T4 has 7.5. float16 runs here" in refused["precision"]
    assert refused["gelu"] == "no triton"
    assert "flash kernel needs compute capability 8.0" in refused["attention"]
    assert "T4 has 7.5" in problems(TURING, precision="tf32")["precision"]
    assert problems(TURING, attention="efficient") == {}
    on_cpu = problems(CPU, precision="tf32", gelu="triton", attention="efficient")
    assert on_cpu.keys() == {"precision", "gelu", "attention"}
    assert all("CPU" in reason for reason in on_cpu.values())


def test_that_a_toggle_without_a_part_in_the_workload_is_neither_refused_nor_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels = {"checkpointing": "all", "dropout": "off"}
    monkeypatch.setattr(registry.by_name("checkpointing"), "unavailable", lambda level, device: "not here")
    assert problems(CPU, **levels) == {"checkpointing": "not here"}
    assert problems(CPU, "generate", **levels) == {}
    run = run_of(small_gpt2(dropout=0.1), RunConfig(workload="generate", levels=tuple(levels.items())))
    with ExitStack() as stack:
        registry.enter(stack, run)
        assert run.model.transformer.drop.p == 0.1
        assert not run.model.is_gradient_checkpointing


def test_that_toggles_are_entered_by_stage_and_left_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    for optimization in registry.OPTIMIZATIONS:

        @contextmanager
        def applied(run: object, level: str, optimization=optimization):  # type: ignore[no-untyped-def]
            events.append(("in", optimization.stage))
            yield
            events.append(("out", optimization.stage))

        monkeypatch.setattr(optimization, "applied", applied)
    config = RunConfig(levels=tuple((o.name, o.levels[-1].id) for o in registry.OPTIMIZATIONS))
    with ExitStack() as stack:
        registry.enter(stack, run_of(small_gpt2(), config))
    entered = [stage for what, stage in events if what == "in"]
    assert entered == sorted(entered)
    assert len(set(entered)) > 1
    assert [stage for what, stage in events if what == "out"] == entered[::-1]


@pytest.mark.parametrize("optimization", registry.OPTIMIZATIONS, ids=lambda o: o.name)
def test_that_each_toggle_says_everything_the_panel_shows(optimization: registry.Optimization) -> None:
    assert optimization.tier in TIERS
    for words in (optimization.label, optimization.help, optimization.cost, optimization.expect, optimization.source):
        assert words == words.strip()
        assert words
    if re.search(r"\d (ms|GiB|GB/s)|tokens/s", optimization.expect):  # a figure names what it was measured on
        shape = r"B = \d+, T = 1024" if "train" in optimization.workloads else "B = 1"
        assert re.search(f"On an H200, GPT-2 124M, {shape}", optimization.expect)
    compile(optimization.code, optimization.name, "exec")
    ids = optimization.level_ids()
    assert len(set(ids)) == len(ids) >= 2
    assert all(level.label and level.help for level in optimization.levels)
    assert set(optimization.tolerance) <= set(ids[1:])
    for need in optimization.needs:
        assert need.level in ids[1:]
        assert set(need.allowed) <= set(registry.by_name(need.other).level_ids())
        if need.beside is not None:
            third, beside = need.beside
            assert set(beside) <= set(registry.by_name(third).level_ids())


def test_that_toggles_are_shown_by_tier_and_share_no_name_with_a_measured_column() -> None:
    tiers = [TIERS.index(o.tier) for o in registry.OPTIMIZATIONS]
    assert tiers == sorted(tiers)
    names = {o.name for o in registry.OPTIMIZATIONS}
    assert len(names) == len(registry.OPTIMIZATIONS)
    assert not names & ({f.name for f in dataclasses.fields(Sample)} | {f.name for f in dataclasses.fields(RunConfig)})
