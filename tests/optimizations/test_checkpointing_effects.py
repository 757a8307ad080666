"""What can be seen from outside while checkpointing and dropout are on: what is recomputed, what is drawn."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
import torch
from toggle_bench import (
    INTERPRETED,
    ON_CPU,
    config_with,
    loss_and_gradients,
    operators,
    run_of,
    running,
    small_gpt2,
    tokens,
)

from explorer.optimizations import registry

# ---- checkpointing


@pytest.mark.parametrize(("level", "recomputed"), [("off", []), ("alternate", [0, 2]), ("all", [0, 1, 2])])
def test_that_checkpointed_blocks_run_once_more_in_the_backward_pass(level: str, recomputed: list[int]) -> None:
    with running("checkpointing", level) as run:
        calls: Counter[int] = Counter()
        for index, block in enumerate(run.model.transformer.h):
            block.attn.register_forward_hook(lambda *_, index=index: calls.update([index]))
        loss_and_gradients(run, tokens(2, 8))
    assert calls == Counter([0, 1, 2, *recomputed])


def test_that_the_random_state_is_read_only_where_something_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> torch.Tensor:
        raise RuntimeError("a recording cannot read it")

    monkeypatch.setattr(torch, "get_rng_state", refuse)
    with running("checkpointing", "all") as run, pytest.raises(RuntimeError, match="recording"):
        loss_and_gradients(run, tokens(2, 8))
    run = run_of(small_gpt2(), registry.with_level(config_with("checkpointing", "all"), "dropout", "off"))
    with ExitStack() as stack:
        registry.enter(stack, run)
        loss_and_gradients(run, tokens(2, 8))


def test_that_checkpointing_keeps_fewer_activations() -> None:
    kept = {}
    for level in ("off", "alternate", "all"):
        with running("checkpointing", level) as run:
            sizes: list[int] = []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t
            ):
                run.model(input_ids=tokens(2, 24), use_cache=False)
            kept[level] = sum(sizes)
    assert kept["all"] < kept["alternate"] < kept["off"]


def test_that_a_recomputed_block_drops_the_same_activations() -> None:
    results = []
    for level in ("off", "alternate", "all"):
        with running("checkpointing", level, dropout=0.3) as run:
            torch.manual_seed(11)
            results.append(loss_and_gradients(run, tokens(2, 24)))
    for loss, gradients in results[1:]:
        assert loss == results[0][0]
        assert torch.equal(gradients, results[0][1])


STEPS = [(name, level) for w, name, level in ON_CPU + INTERPRETED if w == "train" and name != "checkpointing"]


@pytest.mark.parametrize(("name", "level"), [*STEPS, ("linear", "fp8")])
def test_that_blocks_of_every_level_can_be_recomputed_to_the_same_gradients(name: str, level: str) -> None:
    plain = config_with(name, level, init_scale=128.0)
    results = []
    for checkpointing in ("off", "all"):
        run = run_of(small_gpt2(), registry.with_level(plain, "checkpointing", checkpointing))
        with ExitStack() as stack:
            registry.enter(stack, run)
            results.append(loss_and_gradients(run, tokens(2, 24)))
    (loss, gradients), (again_loss, again) = results
    assert again_loss == loss
    assert torch.equal(again, gradients)


# ---- dropout


@pytest.mark.parametrize(("level", "drawn"), [("gpt2", 0.1), ("off", 0.0)])
def test_that_dropout_off_draws_nothing(level: str, drawn: float) -> None:
    with running("dropout", level, dropout=0.1) as run:
        assert {m.p for m in run.model.modules() if isinstance(m, torch.nn.Dropout)} == {drawn}
        seen = operators(run).seen
    # One after the embeddings, three in each of three blocks.
    assert seen["native_dropout"] + seen["bernoulli_"] == (10 if drawn else 0)


def test_that_each_dropout_gets_its_own_probability_back() -> None:
    run = run_of(small_gpt2(dropout=0.1), config_with("dropout", "off"))
    run.model.transformer.h[1].mlp.dropout.p = 0.25
    with ExitStack() as stack:
        registry.enter(stack, run)
    assert run.model.transformer.h[1].mlp.dropout.p == 0.25
    assert run.model.transformer.h[0].mlp.dropout.p == 0.1
