"""compile and cuda_graph: the same training as without, and everything as before afterwards.

On the CPU torch.compile records and differentiates the model but leaves the kernels to torch (aot_eager): what Inductor
and CUDA graphs do is seen on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from toggle_bench import CPU, config_with, device_info, loss_and_gradients, run_of, small_gpt2, state_of, tokens
from transformers import masking_utils
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine.data import Batches
from explorer.engine.device import environment
from explorer.engine.isolation import open_worker
from explorer.engine.no_waits import no_waits
from explorer.engine.session import Session
from explorer.messages import Note, Start
from explorer.optimizations import compiled, registry
from explorer.results.environment import DeviceInfo

LEVELS = ["blocks", "model"]
ALL = {
    "optimizer": "fused",
    "attention": "causal",
    "gelu": "triton_bias",
    "qkv_gradient": "joined",
    "vocab_padding": "128",
    "loss_impl": "fused",
    "compile": "model",
    "cuda_graph": "on",
}
"""Everything that a step in float32 can have at once."""


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    yield
    torch._dynamo.reset()


def graphs() -> int:
    """How many were compiled since the counters were cleared."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("level", LEVELS)
def test_that_a_compiled_model_gives_the_same_loss_and_gradients_and_leaves_nothing_behind(level: str) -> None:
    ids = tokens(2, 16)
    loss, gradients = loss_and_gradients(run_of(small_gpt2(), RunConfig()), ids)
    run = run_of(small_gpt2(), config_with("compile", level))
    before = state_of(run)
    with ExitStack() as stack, no_waits():
        registry.enter(stack, run)
        torch._dynamo.utils.counters.clear()
        found_loss, found = loss_and_gradients(run, ids)
        # One compilation of the model, or of a block that serves all three.
        assert graphs() == 1
        with compiled.as_written(run.model) as was_compiled:
            assert was_compiled
            seen: list[str] = []
            run.model.transformer.h[1].register_forward_hook(lambda *_: seen.append("called"))
            loss_and_gradients(run, ids)
            assert seen == ["called"]
            run.model.transformer.h[1]._forward_hooks.clear()
        loss_and_gradients(run, ids)
        assert graphs() == 1  # what was compiled was not lost by looking
    assert state_of(run) == before
    assert found_loss == pytest.approx(loss, rel=1e-6)
    assert (found - gradients).norm() < 1e-6 * gradients.norm()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("attention", ["naive", "sdpa", "causal", "math"])
def test_that_a_recording_does_not_have_blocks_compiled_again(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(small_gpt2(), registry.with_level(config_with("attention", attention), "compile", "blocks"))
    ids = tokens(2, 16)
    with ExitStack() as stack:
        registry.enter(stack, run)
        stack.enter_context(no_waits())
        first = loss_and_gradients(run, ids)
        torch._dynamo.utils.counters.clear()
        # What transformers 5.17 answers, and 5.22 does not, while the stream is recorded: whether a mask can be left
        # out. A block that is given one for the first time would be compiled within the recording.
        monkeypatch.setattr(masking_utils, "_ignore_causal_mask_sdpa", lambda *_, **__: False)
        loss, gradients = loss_and_gradients(run, ids)
    assert graphs() == 0
    assert loss == first[0]
    assert torch.equal(gradients, first[1])


def test_that_both_name_what_they_lack_on_a_cpu_and_graphs_refuse_what_cannot_be_recorded() -> None:
    assert "CUDA" in registry.problems(config_with("compile", "model"), CPU)["compile"]
    assert "CUDA" in registry.problems(config_with("cuda_graph", "on"), CPU)["cuda_graph"]
    gpu = DeviceInfo(id="cuda:0", kind="cuda", name="a GPU", total_memory_bytes=0, capability=(9, 0), bf16=True)
    without = dataclasses.replace(gpu, triton_problem="no C compiler")
    assert "no C compiler" in registry.problems(config_with("compile", "model"), without)["compile"]
    half = registry.with_level(config_with("cuda_graph", "on"), "precision", "fp16")
    assert "scaler" in registry.problems(half, gpu)["cuda_graph"]
    recomputed = registry.with_level(config_with("cuda_graph", "on"), "checkpointing", "all")
    assert "random state" in registry.problems(recomputed, gpu)["cuda_graph"]
    assert not registry.problems(registry.with_level(recomputed, "dropout", "off"), gpu)
    assert not registry.problems(config_with("cuda_graph", "on"), gpu)


@pytest.mark.usefixtures("backend")
def test_that_a_run_says_what_was_compiled_again_and_why_and_leaves_that_step_out(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("def g(x):\n    return x\n" * 500)
    monkeypatch.setattr(registry.by_name("compile"), "unavailable", lambda level, device: None)
    whole, steps = Batches.next, iter(range(100))

    def shorter_once(batches: Batches) -> tuple[torch.Tensor, float]:
        ids, wait_ms = whole(batches)
        return (ids[:, :12] if next(steps) == 3 else ids), wait_ms

    monkeypatch.setattr(Batches, "next", shorter_once)
    config = RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16)
    talk = Talk(open_worker(in_process=True))
    try:
        talk.worker.send(Start(run_id=1, config=config.with_level("compile", "blocks"), steps=6))
        talk.ended(1)
    finally:
        talk.worker.close()
    (told,) = [event.text for event in talk.events if isinstance(event, Note)]
    assert told.startswith("step 3: torch.compile compiled ")
    assert "size mismatch at index 1, expected 16, actual 12. Its time" in told
    assert [sample.phase == "compile" for sample in talk.samples(1)] == [True, False, False, True, False, False]


@pytest.fixture(scope="module")
def on_gpu(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    return RunConfig(model=str(tiny_model), text=str(text), batch=4, seq=32, lr=1e-3, device="cuda:0").with_level(
        "dropout", "off"
    )


def losses(config: RunConfig, *changes: RunConfig, steps: int = 8) -> list[float]:
    """Losses of ``steps`` steps of ``config``, then of as many of each of ``changes`` in the same run."""
    device = environment().device("cuda")
    found = []
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        for index, setting in enumerate((config, *changes)):
            if index:
                session.change_to(session.accept(setting))
            session.begin_segment(index)
            for _ in range(steps):
                session.loop.step()
            found += [sample.loss for sample in session.loop.collect(all_of_them=True)]
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(
    "levels",
    [
        {"cuda_graph": "on"},
        {"compile": "blocks"},
        {"compile": "model"},
        {"compile": "model", "cuda_graph": "on"},
        {"compile": "blocks", "cuda_graph": "on", "attention": "sdpa"},
        {"compile": "model", "checkpointing": "all"},
        {"compile": "blocks", "checkpointing": "all"},
        {"compile": "model", "cuda_graph": "on", "optimizer": "fused", "attention": "causal"},
        {"cuda_graph": "on", "checkpointing": "all", "grad_accumulation": "2"},
        {"compile": "blocks", "cuda_graph": "on", "checkpointing": "alternate", "grad_accumulation": "2"},
        ALL,
        ALL | {"checkpointing": "all"},
        ALL | {"checkpointing": "alternate", "grad_accumulation": "2"},
        ALL | {"layer_norm": "residual", "optimizer": "fused_clip"},
        ALL | {"compile": "off", "layer_norm": "residual", "checkpointing": "all", "grad_accumulation": "4"},
    ],
    ids=str,
)
def test_that_training_goes_on_through_switching_on_and_off_as_if_untouched(
    on_gpu: RunConfig, levels: dict[str, str]
) -> None:
    changed = on_gpu
    for name, level in levels.items():
        changed = registry.with_level(changed, name, level)
    untouched = losses(on_gpu, on_gpu, on_gpu)
    # Float32 in another order, over 24 steps of a rate at which the loss falls by a third.
    assert losses(on_gpu, changed, on_gpu) == pytest.approx(untouched, rel=2e-4)
    assert untouched[-1] < 0.9 * untouched[0]


@pytest.mark.gpu
def test_that_a_replayed_step_is_one_launch_and_its_memory_is_counted(on_gpu: RunConfig) -> None:
    device = environment().device("cuda")
    peaks = {}
    for level in ("off", "on"):
        config = registry.with_level(dataclasses.replace(on_gpu, batch=32), "cuda_graph", level)
        with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
            session.begin_segment(0)
            for _ in range(8):
                session.loop.step()
            samples = session.loop.collect(all_of_them=True)
            peaks[level] = samples[-1].peak_allocated_bytes
            assert samples[-1].reserved_bytes >= peaks[level]
    # The recording keeps whole segments of the allocator, and cuBLAS another workspace within them: for so small a
    # model as much again. None of it counts as allocated.
    assert peaks["on"] > 0.9 * peaks["off"]


@pytest.mark.gpu
def test_that_every_attention_can_be_compiled_and_recorded_or_is_refused(on_gpu: RunConfig) -> None:
    info = device_info("cuda")
    plain = losses(on_gpu, steps=6)
    for level in registry.by_name("attention").level_ids():
        for extra in ({"cuda_graph": "on"}, {"compile": "model"}):
            config = registry.with_level(on_gpu, "attention", level)
            for name, value in extra.items():
                config = registry.with_level(config, name, value)
            if level == "flash":
                config = registry.with_level(config, "precision", "bf16")
            if level == "cudnn":
                config = registry.with_level(config, "precision", "bf16")
            if registry.problems(config, info):
                continue
            assert losses(config, steps=6) == pytest.approx(plain, rel=2e-2), (level, extra)
