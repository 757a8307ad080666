"""What every toggle promises: it stays within its tolerance, and takes everything back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from toggle_bench import (
    CASES,
    INTERPRETED,
    ON_CPU,
    config_with,
    decoded_logits,
    device_info,
    loss_and_gradients,
    reference,
    run_of,
    small_gpt2,
    state_of,
    tokens,
    tolerance_of,
)
from transformers import DynamicCache

from explorer.config import RunConfig
from explorer.optimizations import registry
from explorer.optimizations.base import Run


def of_workload(workload: str, cases: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [(name, level) for w, name, level in cases if w == workload]


def skip_unless_it_runs_here(config: RunConfig) -> None:
    problems = registry.problems(config, device_info("cuda"))
    if problems:
        pytest.skip(str(problems))


def used_once(run: Run) -> None:
    """What the run is for, once: a step's gradients, or a prompt and a token."""
    if run.config.workload == "train":
        loss_and_gradients(run, tokens(2, 16, run.device.type))
    else:
        ids = tokens(2, 6, run.device.type)
        decoded_logits(run, list(ids[:, :5]), ids[:, 5:])


def assert_restored(config: RunConfig, device: str, model: Any) -> None:
    run = run_of(model, config, device)
    before = state_of(run)
    with ExitStack() as stack:
        registry.enter(stack, run)
        assert state_of(run) != before
        used_once(run)
    assert state_of(run) == before
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        registry.enter(stack, run)
        used_once(run)
        raise ZeroDivisionError
    assert state_of(run) == before


EVERYTHING = {"precision": "fp16", "dropout": "off", "attention": "sdpa", "gelu": "torch", "checkpointing": "all"}


@pytest.mark.parametrize(("workload", "name", "level"), ON_CPU + INTERPRETED)
def test_that_leaving_a_toggle_restores_everything_also_after_an_exception(
    workload: str, name: str, level: str
) -> None:
    assert_restored(config_with(name, level, workload=workload), "cpu", small_gpt2(dropout=0.1))


@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_leaving_all_toggles_together_restores_everything(workload: str) -> None:
    assert_restored(RunConfig(workload=workload, levels=tuple(EVERYTHING.items())), "cpu", small_gpt2(dropout=0.1))


def test_that_a_failure_on_entering_takes_back_what_was_entered_before_it() -> None:
    run = run_of(small_gpt2(activation_function="relu"), RunConfig(levels=tuple(EVERYTHING.items())))
    before = state_of(run)
    with pytest.raises(ValueError, match="relu"), ExitStack() as stack:
        registry.enter(stack, run)
    assert state_of(run) == before


@pytest.mark.gpu
@pytest.mark.parametrize(("workload", "name", "level"), CASES)
def test_that_leaving_a_toggle_restores_everything_on_the_gpu(workload: str, name: str, level: str) -> None:
    config = config_with(name, level, workload=workload)
    skip_unless_it_runs_here(config)
    assert_restored(config, "cuda", small_gpt2(width=64, layers=2, dropout=0.1))


def step_errors(config: RunConfig, device: str, batch: torch.Tensor, model: Any) -> tuple[float, float]:
    """Relative error of the loss, and of all gradients as one vector, against float64 without any toggle."""
    exact_loss, exact = loss_and_gradients(run_of(reference(model), RunConfig(), device), batch)
    run = run_of(model, config, device)
    with ExitStack() as stack:
        registry.enter(stack, run)
        loss, gradients = loss_and_gradients(run, batch)
    return abs(loss - exact_loss) / exact_loss, ((gradients - exact).norm() / exact.norm()).item()


# Without any toggle float32's own errors here are 1e-8 (loss) and 3e-7 (gradients).
@pytest.mark.parametrize(("name", "level"), of_workload("train", ON_CPU))
def test_that_a_training_step_stays_within_its_tolerance(name: str, level: str) -> None:
    config = config_with(name, level, init_scale=128.0)
    loss_error, gradient_error = step_errors(config, "cpu", tokens(2, 24), small_gpt2())
    assert max(loss_error, gradient_error) < tolerance_of(config)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "level"), of_workload("train", CASES))
def test_that_a_training_step_stays_within_its_tolerance_on_the_gpu(name: str, level: str) -> None:
    config = config_with(name, level, init_scale=128.0)
    skip_unless_it_runs_here(config)
    model = small_gpt2(heads=4, width=256, layers=2)
    loss_error, gradient_error = step_errors(config, "cuda", tokens(2, 128, "cuda"), model)
    assert max(loss_error, gradient_error) < tolerance_of(config)


def decoding_error(config: RunConfig, device: str, ids: torch.Tensor, model: Any, chunks: list[int]) -> float:
    """Relative error of the logits got through a cache, ``chunks`` tokens at a time, against one float64 forward."""
    with torch.no_grad():
        exact = reference(model).to(device).eval()(input_ids=ids).logits
        run = run_of(model, config, device)
        cache = DynamicCache(config=model.config)
        with ExitStack() as stack:
            registry.enter(stack, run)
            parts = [
                run.model(input_ids=part, past_key_values=cache, use_cache=True).logits.double()
                for part in ids.split(chunks, dim=1)
            ]
    return ((torch.cat(parts, dim=1) - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(("name", "level"), of_workload("generate", ON_CPU))
def test_that_decoding_through_a_cache_gives_the_full_forward_pass(name: str, level: str) -> None:
    config = config_with(name, level, workload="generate")
    assert decoding_error(config, "cpu", tokens(2, 12), small_gpt2(), [5, 4, 1, 1, 1]) < tolerance_of(config)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "level"), of_workload("generate", CASES))
def test_that_decoding_through_a_cache_gives_the_full_forward_pass_on_the_gpu(name: str, level: str) -> None:
    config = config_with(name, level, workload="generate")
    skip_unless_it_runs_here(config)
    model = small_gpt2(heads=4, width=256, layers=2)
    assert decoding_error(config, "cuda", tokens(2, 40, "cuda"), model, [37, 1, 1, 1]) < tolerance_of(config)


def stepwise_error(config: RunConfig, device: str, model: Any, lengths: list[int], new: int) -> float:
    """Relative error of the logits that the run's own decoder gives, prompt and then token by token, against one
    float64 forward pass of each row alone."""
    ids = tokens(len(lengths), max(lengths) + new, device)
    run = run_of(model, config, device)
    exact_model = reference(model).to(device).eval()
    with torch.no_grad():
        exact = torch.stack(
            [
                exact_model(input_ids=row[None, : n + new]).logits[0, n - 1 :]
                for row, n in zip(ids, lengths, strict=True)
            ]
        )
    prompts = [row[:n] for row, n in zip(ids, lengths, strict=True)]
    after = torch.stack([row[n : n + new] for row, n in zip(ids, lengths, strict=True)])
    with ExitStack() as stack:
        registry.enter(stack, run)
        found = decoded_logits(run, prompts, after).double()
    return ((found - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("lengths", [[9, 9], [3, 9, 1]], ids=str)
@pytest.mark.parametrize(("name", "level"), of_workload("generate", ON_CPU))
def test_that_the_decoder_of_a_run_gives_the_full_forward_pass(name: str, level: str, lengths: list[int]) -> None:
    config = config_with(name, level, workload="generate")
    assert stepwise_error(config, "cpu", small_gpt2(), lengths, 5) < tolerance_of(config)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [[37, 37], [3, 37, 1]], ids=str)
@pytest.mark.parametrize(("name", "level"), of_workload("generate", CASES))
def test_that_the_decoder_of_a_run_gives_the_full_forward_pass_on_the_gpu(
    name: str, level: str, lengths: list[int]
) -> None:
    config = config_with(name, level, workload="generate")
    skip_unless_it_runs_here(config)
    if level == "flash" and len(set(lengths)) > 1:
        pytest.skip("FlashAttention takes no mask, which unequal prompts need")
    model = small_gpt2(heads=4, width=256, layers=2)
    assert stepwise_error(config, "cuda", model, lengths, 5) < tolerance_of(config)
