"""The five troubles of every tuner, planted for real, and what the diagnosis makes of each: cause and number."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import end_of, served
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.runtime import build

from explorer.config import RunConfig
from explorer.engine import data
from explorer.engine.device import environment, environment_of
from explorer.engine.errors import BadRequest
from explorer.engine.facts import GpuFacts
from explorer.engine.gather import gather
from explorer.engine.known_errors import describe_known
from explorer.engine.out_of_memory import describe_out_of_memory
from explorer.engine.proving import profile_of
from explorer.engine.session import check
from explorer.experiments.recording import record
from explorer.messages import Event
from explorer.optimizations import registry
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.cures import cures
from explorer.results.diagnosis import Cause, Diagnosis, diagnosis
from explorer.results.environment import DeviceInfo
from explorer.results.log import RunLog
from explorer.results.proof import Profile

HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=0, capability=(9, 0), bf16=True)
KEPT: list[torch.Tensor] = []


class Planted(Optimization):
    """Troubles that are no toggle of their own."""

    name = "planted"
    label = "Planted"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = tuple(
        Level(id=id, label=id, help=id)
        for id in ("none", "too_large", "whole_mask", "one_kernel", "no_compiler", "keeps_64_mib")
    )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        q = torch.zeros(1, 2, 8, 12, device=run.device)

        def plant(*_: Any) -> None:
            attend = torch.nn.functional.scaled_dot_product_attention
            match level:
                case "too_large":
                    torch.empty(2**50, dtype=torch.uint8, device=run.device)
                case "whole_mask":
                    attend(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.int64, device=run.device))
                case "one_kernel":
                    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                        attend(q, q, q, dropout_p=0.1)
                case "no_compiler":
                    build._build("launcher", "launcher.c", "/nowhere", [], [], [], [])
                case "keeps_64_mib":
                    KEPT.append(torch.zeros(2**24, device=run.device))

        hook = run.model.transformer.h[1].register_forward_hook(plant)
        try:
            yield
        finally:
            hook.remove()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "OPTIMIZATIONS", (*registry.OPTIMIZATIONS, Planted()))
    yield
    KEPT.clear()


def diagnosed(config: RunConfig, steps: int = 6, profile: Profile | None = None) -> Diagnosis:
    """What a run of ``config`` showed."""
    log = RunLog()
    log.set_environment(environment())
    log.begin_run(1, config)
    for event in served(config, steps=steps):
        record(log, event)
    return diagnosis(log.run(1), profile)


def said(found: Diagnosis, cause: Cause) -> str:
    (text,) = (finding.text for finding in found.findings if finding.cause == cause)
    return text


# ---- 1. out of memory


def test_that_a_batch_too_large_is_named_with_what_it_asked_for(planted: None, tiny: RunConfig) -> None:
    text = said(diagnosed(tiny.with_level("planted", "too_large")), "failed")
    assert text.startswith("Out of memory: batch 2 x 16 tokens does not fit. 1048576.00 GiB were asked for at once")


@pytest.mark.gpu
def test_that_tensors_kept_from_step_to_step_are_seen_while_they_grow(planted: None, tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, device="cuda:0").with_level("planted", "keeps_64_mib")
    assert said(diagnosed(config, steps=80), "growth").startswith("memory grew by 64.0 MiB a step: ")


# ---- 2. no speed-up


def test_that_a_loader_that_works_in_the_loop_is_data_bound_with_its_share(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = data.Batches._cut

    def slowly(self: data.Batches, index: int) -> torch.Tensor:
        for _ in range(8):  # as a tokenizer in the loop would
            torch.sort(torch.rand(200_000, generator=torch.Generator().manual_seed(index)))
        return cut(self, index)

    monkeypatch.setattr(data.Batches, "_cut", slowly)
    text = said(diagnosed(tiny, steps=12), "data")
    found = re.fullmatch(r"data-bound: a step waited ([\d.]+) of ([\d.]+) ms for its batch \((\d+)%\)", text)
    assert found is not None, text
    waited_ms, step_ms, share = map(float, found.groups())
    assert share > 50
    assert 100 * waited_ms / step_ms == pytest.approx(share, abs=2)


def on_gpu(tiny: RunConfig, steps: int = 60, **levels: str) -> tuple[Diagnosis, list[str]]:
    """What a run on the GPU and a profile of it showed, and the toggles that are suggested."""
    config = dataclasses.replace(tiny, device="cuda:0", levels=tuple(levels.items()))
    profile = profile_of(config)
    assert isinstance(profile, Profile), profile
    found = diagnosed(config, steps, profile)
    return found, [cure.toggle for cure in cures(found.causes, config, environment().device("cuda:0"))]


@pytest.mark.gpu
@pytest.mark.alone
def test_that_a_model_too_small_for_its_gpu_is_launch_bound(tiny: RunConfig) -> None:
    found, toggles = on_gpu(tiny)
    share = re.match(r"launch-bound: the GPU was busy (\d+)% of the time", said(found, "launch"))
    assert share is not None
    assert int(share[1]) < 50
    assert "a kernel ran " in said(found, "small")
    assert "cuda_graph" in toggles


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "level"), [("sync_every_step", "on"), ("data_loading", "pageable")])
def test_that_a_wait_in_each_step_is_named_and_its_toggle_first(tiny: RunConfig, name: str, level: str) -> None:
    found, toggles = on_gpu(tiny, **{name: level})
    assert said(found, "waits").startswith("each step made Python wait for the GPU once")
    assert toggles[0] == name


# ---- 3. NaN


def test_that_a_rate_too_high_is_named_with_the_curve_of_the_norms(tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, lr=1.0, weight_decay=10.0, grad_clip=0.0)
    found = diagnosed(config, steps=60)
    assert "the loss is nan" in said(found, "loss")
    assert "at a learning rate of 1 and no clipping" in said(found, "loss")
    norms = [norm for _, norm in found.norms]
    assert max(norm for norm in norms if math.isfinite(norm)) > 1e3 * norms[0]
    assert not math.isfinite(norms[-1])


def test_that_a_first_loss_scale_of_two_to_the_thirty_is_named_with_its_steps(tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, init_scale=2.0**30).with_level("precision", "fp16")
    found = diagnosed(config, steps=30)
    assert said(found, "loss").endswith("(init_scale is 1.074e+09)")
    assert not math.isfinite(found.norms[0][1])
    assert math.isfinite(found.norms[-1][1])
    assert cures(found.causes, config, HOPPER)[0].toggle == "precision"


# ---- 4. SDPA


def folder_of(tmp_path: Path, heads: int, width: int) -> str:
    shape = {"n_layer": 2, "n_head": heads, "n_embd": width, "vocab_size": 96, "n_positions": 64}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("level", "precision", "allowed"),
    [
        ("cudnn", "bf16", "the cudnn kernel takes multiples of 8"),
        ("efficient", "fp16", "the efficient kernel takes multiples of 8"),
        ("triton", "bf16", "the Triton kernel takes 16, 32, 64, 128"),
        ("efficient", "fp32", None),
        ("flash", "bf16", None),
    ],
)
def test_that_heads_of_twelve_numbers_are_refused_before_they_fail(
    tmp_path: Path, level: str, precision: str, allowed: str | None
) -> None:
    levels = (("attention", level), ("precision", precision), ("dropout", "off"))
    config = RunConfig(model=folder_of(tmp_path, 2, 24), device="cuda:0", levels=levels)
    if allowed is None:
        check(config, HOPPER)
        return
    with pytest.raises(BadRequest, match=rf"this model's heads have 12 numbers; {allowed}"):
        check(config, HOPPER)


def test_that_flash_is_refused_for_prompts_whose_padding_it_would_see() -> None:
    levels = (("attention", "flash"), ("weight_dtype", "bf16"))
    config = RunConfig(workload="generate", device="cuda:0", batch=2, levels=levels)
    check(config, HOPPER)
    with pytest.raises(BadRequest, match="shorter prompts leave empty"):
        check(dataclasses.replace(config, more_prompts=("import os",)), HOPPER)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch warns of each reason before it raises
@pytest.mark.parametrize("backend", ["CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "FLASH_ATTENTION"])
def test_that_torch_itself_can_do_what_is_not_refused_and_no_more(backend: str) -> None:
    q = torch.randn(1, 2, 64, 12, device="cuda", dtype=torch.bfloat16)
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel([getattr(SDPBackend, backend)]))
        if backend != "FLASH_ATTENTION":
            stack.enter_context(pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"))
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("whole_mask", "The attention mask is of a wrong type: its numbers are long int, those of the queries float;"),
        (
            "one_kernel",
            "SDPA has no kernel for this: with attention=naive only one is allowed, and it cannot do heads ",
        ),
    ],
)
def test_that_sdpa_refusing_is_put_in_words(planted: None, tiny: RunConfig, level: str, words: str) -> None:
    text = said(diagnosed(tiny.with_level("planted", level)), "failed")
    assert text.startswith(words)
    assert level == "whole_mask" or "heads of 16 numbers in fp32" in text


# ---- 5. Triton


def gpu_here(capability: tuple[int, int]) -> DeviceInfo:
    """What would be said of a GPU of that capability in this machine as it is now."""
    gpu = GpuFacts(index=0, name="GPU", capability=capability, total_memory_bytes=2**34)
    return environment_of(dataclasses.replace(gather(), variables={}, gpus=(gpu,))).device("cuda:0")


def test_that_a_machine_without_a_compiler_refuses_triton_with_its_cure(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(tiny, device="cuda:0").with_level("gelu", "triton")
    check(config, gpu_here((9, 0)))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BadRequest, match="Triton needs a C compiler; install gcc, or name one in the variable CC"):
        check(config, gpu_here((9, 0)))
    with pytest.raises(BadRequest, match=r"Triton needs compute capability 7.0 or newer; this device has 6.1"):
        check(config, gpu_here((6, 1)))


def test_that_tritons_own_word_for_it_is_understood(
    planted: None, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    text = said(diagnosed(tiny.with_level("planted", "no_compiler")), "failed")
    assert text.startswith(
        "Triton could not compile: it builds a launcher for each kernel with a C compiler, and found "
    )
    assert "Install gcc" in text


def test_that_an_error_names_the_toggles_that_avoid_it(tiny: RunConfig) -> None:
    own = dataclasses.replace(tiny, levels=(("attention", "triton"), ("gelu", "triton"), ("layer_norm", "triton")))
    compiler = describe_known(RuntimeError("Failed to find C compiler. Please specify via CC"), own)
    assert compiler is not None
    assert dict(compiler.flips) == {"attention": "causal", "gelu": "torch", "layer_norm": "torch"}
    kernel = describe_known(RuntimeError("No available kernel. Aborting execution."), tiny)
    assert kernel is not None
    assert kernel.flips == (("attention", "sdpa"),)
    large = dataclasses.replace(RunConfig(), batch=512)
    memory = describe_out_of_memory(
        MemoryError(), large, DeviceInfo(id="cpu", kind="cpu", name="", total_memory_bytes=0), None
    )
    assert (memory.batch, memory.flips) == (256, ())
    smallest = describe_out_of_memory(MemoryError(), dataclasses.replace(large, batch=1), None, None)
    assert smallest.batch is None, "it is 1 already"


def test_that_an_unknown_failure_stays_itself(tiny: RunConfig) -> None:
    events: list[Event] = served(dataclasses.replace(tiny, text="/no/such/file"), steps=1)
    problem = end_of(events).problem
    assert problem is not None
    assert "/no/such/file" in str(problem)
