"""compile in generation: the same logits as without, two compilations, and everything as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from toggle_bench import config_with, decoded_logits, run_of, small_gpt2, state_of, tokens

from explorer.config import RunConfig
from explorer.optimizations import compiled, registry
from explorer.results.environment import DeviceInfo

GPU = DeviceInfo(id="cuda:0", kind="cuda", name="a GPU", total_memory_bytes=0, capability=(9, 0), bf16=True)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU the kernels are left to torch; Inductor's are seen on a GPU."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    yield
    torch._dynamo.reset()


def generating(compile: str, attention: str) -> RunConfig:
    config = RunConfig(workload="generate").with_level("kv_cache", "static").with_level("attention", attention)
    return registry.with_level(config, "compile", compile)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3)], ids=["equal", "unequal"])
@pytest.mark.parametrize("attention", ["naive", "sdpa"])
def test_that_a_compiled_model_decodes_as_without_and_leaves_nothing_behind(
    attention: str, lengths: tuple[int, ...]
) -> None:
    ids = tokens(2, 9)
    prompts = [row[:length] for row, length in zip(ids, lengths, strict=True)]
    plain = run_of(small_gpt2(), generating("off", attention))
    with ExitStack() as stack:
        registry.enter(stack, plain)
        expected = decoded_logits(plain, prompts, ids[:, 5:])
    run = run_of(small_gpt2(), generating("model", attention))
    before = state_of(run)
    with ExitStack() as stack:
        registry.enter(stack, run)
        torch._dynamo.utils.counters.clear()
        found = decoded_logits(run, prompts, ids[:, 5:])
        again = decoded_logits(run, prompts, ids[:, 5:])
        # The prompt's pass and a token's: not one for each of the four tokens, nor for the second text.
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert state_of(run) == before
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found, again)


def test_that_what_would_be_compiled_at_each_token_or_never_called_is_refused() -> None:
    whole = config_with("compile", "model", workload="generate")
    assert not registry.problems(whole, GPU)
    assert (
        "each would be compiled" in registry.problems(registry.with_level(whole, "kv_cache", "dynamic"), GPU)["compile"]
    )
    assert "do not call" in registry.problems(registry.with_level(whole, "decoder", "torch"), GPU)["compile"]
    assert "workload train" in registry.problems(registry.with_level(whole, "compile", "blocks"), GPU)["compile"]
    assert not registry.problems(config_with("compile", "blocks"), GPU)
