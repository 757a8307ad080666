"""What toggles read out of real profiles of a small model, on the CPU and on a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from toggle_bench import CPU, config_with, device_info

from explorer.config import RunConfig
from explorer.engine import proof
from explorer.engine.proof import fitted, take_profile
from explorer.engine.session import Session
from explorer.optimizations import registry
from explorer.optimizations.attention import Attention
from explorer.optimizations.fused_gelu import FusedGelu
from explorer.optimizations.proofs import proof_of
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Profile, Tally

Take = Callable[[RunConfig], Profile]

LEVELS = [(o.name, level.id) for o in registry.OPTIMIZATIONS for level in o.levels]


def profile_here(config: RunConfig, device: DeviceInfo) -> Profile:
    with session_of(config, device) as session:
        session.begin_segment(0)
        return take_profile(session)


def session_of(config: RunConfig, device: DeviceInfo = CPU) -> Session:
    return Session(fitted(config), device, download=False, report=lambda *_: None, cancelled=lambda: False)


@pytest.fixture(scope="module")
def base(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    return RunConfig(model=str(tiny_model), text=str(text), batch=2, seq=16, device="cpu")


@pytest.fixture(scope="module")
def take(base: RunConfig) -> Iterator[Take]:
    """A profile on the CPU, each configuration's only once, with a round to warm up and one that is timed."""
    taken: dict[RunConfig, Profile] = {}

    def profile(config: RunConfig) -> Profile:
        if config not in taken:
            taken[config] = profile_here(config, CPU)
        return taken[config]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "WARM_UP_ROUNDS", 1)
        patch.setattr(proof, "TIMED_ROUNDS", 1)
        yield profile


def at(base: RunConfig, name: str, level: str) -> RunConfig:
    """``base`` with one toggle set, beside what it needs; SDPA's kernel for the CPU does without dropout."""
    config = config_with(name, level, **{f.name: getattr(base, f.name) for f in dataclasses.fields(base)})
    if name == "attention" and level in ("sdpa", "causal") and config.workload == "train":
        config = registry.with_level(config, "dropout", "off")
    return config


def test_that_every_level_says_what_a_profile_must_show() -> None:
    for optimization in registry.OPTIMIZATIONS:
        assert tuple(optimization.proof) == optimization.level_ids()


SAME = ({"naive", "naive_half"}, {"sdpa", "causal"}, {"off", "128"})
"""Levels that run the same here: a 16-bit softmax is either attention's in generation; SDPA is given no mask outside of
torch.compile; and the vocabulary of 8192 is a multiple of 128."""


@pytest.mark.parametrize("workload", ["train", "generate"])
@pytest.mark.parametrize("name", [o.name for o in registry.OPTIMIZATIONS])
def test_that_a_profile_proves_the_level_that_ran_and_no_other(
    base: RunConfig, take: Take, workload: Any, name: str
) -> None:
    toggle = registry.by_name(name)
    if workload not in toggle.workloads:
        pytest.skip(f"{name} plays no part in this workload")
    batch = 1 if workload == "generate" else 8 if name == "grad_accumulation" else base.batch
    start = dataclasses.replace(base, workload=workload, batch=batch, prompt="def g(x):")
    tried = 0
    for level in toggle.level_ids():
        config = at(start, name, level)
        if registry.problems(config, CPU):
            continue
        tried += 1
        profile = take(config)
        proofs = proof_of(config, profile)
        assert all(proof.shown for proof in proofs.values()), (level, proofs)
        same = {level}.union(*(s for s in SAME if level in s and (workload == "generate" or "naive" not in s)))
        claimed = {other for other, judge in toggle.proof.items() if judge(profile).shown}
        assert level in claimed
        assert claimed <= same
    assert tried == sum(toggle.unavailable(level, CPU) is None for level in toggle.level_ids())


def test_that_the_profile_holds_what_the_model_is_known_to_do(base: RunConfig, take: Take) -> None:
    """Two blocks, each with 4 products with weights, 2 within attention; the head is one more."""
    profile = take(at(base, "precision", "bf16"))
    # addmm forward; backward two mm for each weight, and three for the head (forward included).
    assert set(profile.products) == {
        Tally(op="addmm", dtype="bfloat16", count=8),
        Tally(op="mm", dtype="bfloat16", count=2 * 8 + 3),
        Tally(op="bmm", dtype="bfloat16", count=2 * 2 * 3),
    }
    assert profile.attention_softmax == (Tally(op="_softmax", dtype="float32", count=2),)
    assert profile.block_forwards == (1, 1)
    assert profile.launches is None
    assert profile.busy_share != profile.busy_share  # NaN
    assert profile.step_ms > 0
    assert all(a.total_us >= b.total_us for a, b in pairwise(profile.kernels))
    generated = take(dataclasses.replace(base, workload="generate", batch=1))
    assert generated.block_forwards == (5, 5)
    assert generated.operator_count("aten::addmm") == 5 * 8


OWN = ("layer_norm-residual", "qkv_gradient-joined", "gelu-triton_bias")


@pytest.mark.parametrize("levels", [("layer_norm-triton",), OWN], ids=len)
def test_that_the_forward_of_blocks_is_seen_through_kernels_of_our_own(
    base: RunConfig, levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "WARM_UP_ROUNDS", 1)
    monkeypatch.setattr(proof, "TIMED_ROUNDS", 1)
    config = at(base, "checkpointing", "alternate")
    for name, level in (each.split("-") for each in levels):
        monkeypatch.setattr(registry.by_name(name), "unavailable", lambda level, device: None)
        config = registry.with_level(config, name, level)
    profile = profile_here(registry.with_level(config, "dropout", "off"), CPU)
    assert profile.block_forwards == (2, 1)


def test_that_a_toggle_that_did_nothing_is_flagged(base: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attention, "applied", lambda self, run, level: nullcontext())
    config = at(base, "attention", "sdpa")
    proofs = proof_of(config, profile_here(config, CPU))
    assert not proofs["attention"].shown
    assert "fused kernels: none; 2 softmaxes" in proofs["attention"].evidence
    assert all(proof.shown for name, proof in proofs.items() if name != "attention")


def test_that_a_toggle_that_left_out_a_block_is_flagged(base: RunConfig) -> None:
    config = at(base, "gelu", "torch")
    with session_of(config) as session:
        before = session.run.model.transformer.h[1].mlp.act
        session.begin_segment(0)
        session.run.model.transformer.h[1].mlp.act = before
        proof = proof_of(config, take_profile(session))["gelu"]
    assert not proof.shown
    assert "2 were to be seen each way; of another level: " in proof.evidence
    assert "aten::tanh x1" in proof.evidence


def test_that_attention_that_drops_is_not_dropout_off(base: RunConfig) -> None:
    config = at(base, "attention", "sdpa")
    with session_of(config) as session:
        session.begin_segment(0)
        for block in session.run.model.transformer.h:
            block.attn.attn_dropout.p = 0.25
        profile = take_profile(session)
    assert profile.attention_dropout == 0.25
    assert not proof_of(config, profile)["dropout"].shown


def test_that_profiling_leaves_nothing_in_the_model_and_the_run_goes_on(base: RunConfig) -> None:
    with session_of(base) as session:
        session.begin_segment(0)
        take_profile(session)
        modules = list(session.run.model.modules())
        assert not any(module._forward_pre_hooks for module in modules)
        session.loop.step()
        (sample,) = session.loop.collect(all_of_them=True)
        # Rounds to warm up, timed ones, and two that are profiled.
        assert sample.step == proof.WARM_UP_ROUNDS + proof.TIMED_ROUNDS + 2


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "level"), LEVELS)
@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_a_profile_on_the_gpu_proves_each_level(base: RunConfig, workload: Any, name: str, level: str) -> None:
    toggle = registry.by_name(name)
    if workload not in toggle.workloads or workload not in toggle.level(level).workloads:
        pytest.skip(f"{name}={level} plays no part in this workload")
    prompt = "def g(x):\n    return x"  # cuDNN refuses a prompt of one token
    start = dataclasses.replace(
        base, workload=workload, model="mini", device="cuda:0", batch=32, seq=128, prompt=prompt
    )
    config = config_with(name, level, **{f.name: getattr(start, f.name) for f in dataclasses.fields(start)})
    device = device_info("cuda")
    if registry.problems(config, device):
        pytest.skip(str(registry.problems(config, device)))
    profile = profile_here(config, device)
    proofs = proof_of(config, profile)
    assert not {toggle: proof.evidence for toggle, proof in proofs.items() if not proof.shown}
    assert profile.launches is not None
    kernels = sum(kernel.count for kernel in profile.kernels)
    if name in ("decode_graph", "cuda_graph") and level == "on":
        assert 0 < profile.launches < kernels / 5  # of some hundred kernels a token or a step
    else:
        assert profile.launches == kernels > 0
    assert 0 < profile.busy_share <= 1
    if (name, level) == ("gelu", "triton"):
        wanted = ("gelu_backward", "gelu_forward") if workload == "train" else ("gelu_forward",)
        assert profile.triton_kernels == wanted


@pytest.mark.gpu
def test_that_a_fused_kernel_that_did_not_run_is_flagged_on_the_gpu(
    base: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FusedGelu, "applied", lambda self, run, level: nullcontext())
    config = registry.with_level(dataclasses.replace(base, device="cuda:0"), "gelu", "triton")
    proof = proof_of(config, profile_here(config, device_info("cuda")))["gelu"]
    assert not proof.shown
    assert "tanh_kernel_cuda" in proof.evidence
