"""What can be seen from outside while vocab_padding and loss_impl are on: logits, loss and their gradients."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from toggle_bench import (
    DEVICES,
    OperatorLog,
    loss_and_gradients,
    run_of,
    running,
    small_gpt2,
    stepped,
    tokens,
    weights,
)

from explorer.config import RunConfig
from explorer.engine import numerics
from explorer.engine.no_waits import no_waits
from explorer.engine.training import train_step
from explorer.optimizations import registry

# ---- vocab_padding


@pytest.mark.parametrize("device", DEVICES)
def test_that_padding_the_vocabulary_changes_no_number_and_its_rows_stay_zero(device: str) -> None:
    """Two steps each of plain, padded, plain: as six of plain; 96 tokens become 128 rows."""
    config = RunConfig()
    results = []
    for middle in ("off", "128"):
        run = run_of(small_gpt2(), config, device)
        weight = run.model.transformer.wte.weight
        for level in ("off", middle, "off"):
            run.config = registry.with_level(config, "vocab_padding", level)
            with ExitStack() as stack:
                registry.enter(stack, run)
                stepped(run, 2)
                assert run.model.lm_head.weight is run.model.transformer.wte.weight is weight
                assert len(weight) == (96 if level == "off" else 128)
                assert run.optimizer is not None
                state = run.optimizer.state[weight]
                assert weight.grad is not None
                for tensor in (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]):
                    assert len(tensor) == len(weight)
                    assert not tensor[96:].any()
                assert run.model(input_ids=tokens(2, 8, device)).logits.shape == (2, 8, 96)
        assert len(weight) == len(run.optimizer.state[weight]["exp_avg"]) == 96
        results.append(weights(run))
    start = weights(run_of(small_gpt2(), config))
    # Seen: 7e-4, as for another order of the same sums; averages lost by the way: 0.2.
    assert (results[1] - results[0]).norm() < 2e-3 * (results[0] - start).norm()


def test_that_padding_widens_the_head_and_not_the_loss() -> None:
    with running("vocab_padding", "128") as run:
        seen: list[tuple[int, ...]] = []
        run.model.lm_head.register_forward_hook(lambda module, args, out: seen.append(out.shape))
        with OperatorLog() as log:
            loss_and_gradients(run, tokens(2, 8))
        _, norm = train_step(run, tokens(2, 8))
        found = numerics._gradients(run, float(norm))["transformer.wte.weight"]
        assert found.shape == (96, 64)
    assert seen == [(2, 8, 96)] * 2
    assert log.widths["_log_softmax"] == {96}
    assert 128 in log.widths["mm"]


# ---- loss_impl


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", ["off", "128"])
@pytest.mark.parametrize("level", ["chunked", "fused"])
def test_that_a_loss_in_chunks_has_transformers_value_and_gradients(level: str, padding: str, device: str) -> None:
    """With 48 rows in four chunks; and of a vocabulary padded to 128 rows, the rows beyond take no part."""
    ids = tokens(2, 24, device)
    ids[1, 5] = 0
    results = []
    for name in ("hf", level):
        config = registry.with_level(RunConfig(levels=(("loss_impl", name),)), "vocab_padding", padding)
        run = run_of(small_gpt2(width=64), config, device)
        with ExitStack() as stack:
            registry.enter(stack, run)
            with OperatorLog() as log:
                results.append(loss_and_gradients(run, ids))
    (loss, gradients), (own_loss, own_gradients) = results
    assert own_loss == pytest.approx(loss, rel=1e-6)
    assert (own_gradients - gradients).norm() < 1e-5 * gradients.norm()  # 2e-7 seen
    assert log.seen["nll_loss_forward"] == 0
    assert log.seen["_log_softmax"] == (4 if level == "chunked" else 0)
    assert log.widths["mm"] & {96, 128} == ({96} if padding == "off" else {128})


def test_that_no_more_than_a_chunk_of_logits_exists() -> None:
    with running("loss_impl", "chunked") as run:
        sizes: list[int] = []
        watch = torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t)
        with OperatorLog() as log, watch:
            run.model(input_ids=tokens(2, 24), labels=tokens(2, 24), use_cache=False)
    assert log.widths["_log_softmax"] == {96}
    assert log.seen["_log_softmax"] == 4
    assert 48 * 96 not in sizes  # nor is it kept for the backward pass


@pytest.mark.parametrize("device", DEVICES)
def test_that_logits_are_there_without_gradients_and_refused_with(device: str) -> None:
    ids = tokens(2, 8, device)
    plain = run_of(small_gpt2(width=64), RunConfig(), device).model
    with running("loss_impl", "chunked", device=device) as run:
        output = run.model(input_ids=ids, labels=ids)
        assert output.logits is None
        with pytest.raises(ValueError, match=r"loss_impl = chunked makes no logits .* torch.no_grad"):
            run.model(input_ids=ids)
        with torch.no_grad():
            expected, found = plain(input_ids=ids, labels=ids), run.model(input_ids=ids, labels=ids)
        torch.testing.assert_close(found.logits, expected.logits)
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(output.loss, expected.loss)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("level", ["chunked", "fused"])
def test_that_a_loss_in_chunks_is_compiled_with_the_model(level: str, device: str) -> None:
    run = run_of(small_gpt2(), RunConfig(levels=(("loss_impl", level), ("attention", "causal"))), device)
    ids = tokens(2, 24, device)
    with ExitStack() as stack:
        registry.enter(stack, run)
        stack.enter_context(no_waits())
        stack.callback(torch._dynamo.reset)
        loss, gradients = loss_and_gradients(run, ids)
        run.model.compile(backend="aot_eager", fullgraph=True, dynamic=False)
        compiled_loss, compiled_gradients = loss_and_gradients(run, ids)
    assert compiled_loss == pytest.approx(loss, rel=1e-6)
    assert (compiled_gradients - gradients).norm() < 1e-5 * gradients.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("level", ["chunked", "fused"])
def test_that_a_loss_in_chunks_takes_less_memory(level: str) -> None:
    """Eight thousand rows of a vocabulary far wider than the model: nearly all of a step's memory is logits."""
    peaks = {}
    for name in ("hf", level):
        config = RunConfig(levels=(("loss_impl", name), ("precision", "bf16")))
        model = small_gpt2()
        model.resize_token_embeddings(16384, mean_resizing=False)
        run = run_of(model, config, "cuda")
        with ExitStack() as stack:
            registry.enter(stack, run)
            ids = tokens(64, 128, "cuda")
            train_step(run, ids)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            train_step(run, ids)
            peaks[name] = torch.cuda.max_memory_allocated() - before
    assert peaks[level] < 0.5 * peaks["hf"], peaks
