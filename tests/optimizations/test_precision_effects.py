"""What can be seen from outside while precision and weight_dtype are on: the dtypes of products, weights and scales."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from toggle_bench import (
    CPU,
    DEVICES,
    config_with,
    loss_and_gradients,
    overflow_once,
    requested_bytes,
    run_of,
    running,
    small_gpt2,
    tokens,
)

from explorer.config import RunConfig
from explorer.optimizations import registry

HALVES = [("fp16", torch.float16), ("bf16", torch.bfloat16)]


# ---- precision


@pytest.mark.parametrize(("level", "dtype"), HALVES)
@pytest.mark.parametrize("device", DEVICES)
def test_that_half_precision_training_multiplies_in_half_and_keeps_float32_weights(
    level: str, dtype: torch.dtype, device: str
) -> None:
    with running("precision", level, device=device) as run:
        seen = []
        run.model.transformer.h[1].mlp.c_fc.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
        loss_and_gradients(run, tokens(2, 8, device))
        assert seen == [dtype]
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_that_only_float16_has_a_scaler_and_that_it_starts_where_asked() -> None:
    with running("precision", "fp16", init_scale=1024.0) as run:
        assert run.scaler is not None
        assert run.scaler.get_scale() == 1024.0
    assert run.scaler is None
    with running("precision", "bf16") as run:
        assert run.scaler is None
    with running("precision", "fp16", workload="generate") as run:
        assert run.scaler is None


def test_that_the_loss_scale_survives_a_change_to_another_precision_and_back() -> None:
    run = run_of(small_gpt2(), config_with("precision", "fp16", init_scale=1024.0))
    with ExitStack() as stack:
        registry.enter(stack, run)
        overflow_once(run)
    for level, scale in (("bf16", None), ("fp16", 512.0)):
        run.config = registry.with_level(run.config, "precision", level)
        with ExitStack() as stack:
            registry.enter(stack, run)
            assert (run.scaler.get_scale() if run.scaler else None) == scale


def test_that_another_first_loss_scale_asked_for_within_a_run_is_obeyed() -> None:
    run = run_of(small_gpt2(), config_with("precision", "fp16", init_scale=1024.0))
    for first, scale in ((1024.0, 512.0), (64.0, 32.0)):
        run.config = config_with("precision", "fp16", init_scale=first)
        with ExitStack() as stack:
            registry.enter(stack, run)
            overflow_once(run)
            assert run.scaler is not None
            assert run.scaler.get_scale() == scale


@pytest.fixture
def products() -> Iterator[Any]:
    """The process's flag for float32 matrix products, put back at the end."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    yield matmul
    matmul.fp32_precision = before


@pytest.mark.parametrize("before", ["ieee", "none"])
def test_that_tf32_is_on_within_and_as_before_after(products: Any, before: str) -> None:
    products.fp32_precision = before
    run = run_of(small_gpt2(), config_with("precision", "tf32"))
    with pytest.raises(ZeroDivisionError), registry.by_name("precision").process_wide(run, "tf32"):
        assert products.fp32_precision == "tf32"
        raise ZeroDivisionError
    assert products.fp32_precision == before


@pytest.mark.gpu
def test_that_tf32_rounds_products_and_float32_does_not(products: Any) -> None:
    products.fp32_precision = "ieee"
    a, b = torch.randn(2, 512, 512, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    exact = (a.double() @ b.double()).float()

    def error() -> float:
        return ((a @ b - exact).norm() / exact.norm()).item()

    assert error() < 1e-6
    with running("precision", "tf32", device="cuda"):
        assert 1e-5 < error() < 1e-3  # ten bits of mantissa
    assert error() < 1e-6


# ---- weight_dtype


@pytest.mark.parametrize(("level", "dtype"), HALVES)
@pytest.mark.parametrize("device", DEVICES)
def test_that_half_precision_casts_the_weights_themselves(level: str, dtype: torch.dtype, device: str) -> None:
    with running("weight_dtype", level, device=device, workload="generate") as run:
        assert {p.dtype for p in run.model.parameters()} == {dtype}
        assert run.model.lm_head.weight is run.model.transformer.wte.weight
        assert run.model(input_ids=tokens(1, 4, device)).logits.dtype == dtype


def test_that_int8_weights_are_rounded_to_steps_of_their_outputs_own_size() -> None:
    exact = {name: p.detach().clone() for name, p in small_gpt2(width=64).named_parameters()}
    with running("weight_dtype", "int8", workload="generate") as run:
        block = run.model.transformer.h[2]
        for name, kept in (
            ("transformer.h.2.attn.c_proj.weight", block.attn.c_proj),
            ("transformer.h.2.mlp.c_fc.weight", block.mlp.c_fc),
            ("transformer.wte.weight", run.model.lm_head),
        ):
            weight = exact[name] if "wte" in name else exact[name].T
            step = weight.abs().amax(dim=1, keepdim=True) / 127
            assert kept.weight.dtype == torch.int8
            # Half a step; the largest weight may be cut by as much again as the scale in bfloat16 is too small.
            off = (kept.weight.double() * kept.scale.double()[:, None] - weight).abs() / step
            assert off[weight.abs() < 126 * step].max() < 0.502
            assert off.max() < 1
            assert kept.weight.abs().amax(dim=1).ge(126).all()
        ids = tokens(2, 6)
        assert torch.equal(
            run.model.transformer.wte(ids), run.model.lm_head.weight[ids] * run.model.lm_head.scale[ids][..., None]
        )


@pytest.mark.gpu
@pytest.mark.parametrize(("level", "share"), [("bf16", 0.5), ("int8", 0.25)])
def test_that_smaller_weights_take_less_device_memory(level: str, share: float) -> None:
    run = run_of(small_gpt2(width=512), config_with("weight_dtype", level, workload="generate"), "cuda")
    whole = sum(p.nbytes for p in run.model.parameters())
    gc.collect()  # what earlier tests left in cycles would be freed in between
    before = requested_bytes()
    with ExitStack() as stack:
        registry.enter(stack, run)
        saved = before - requested_bytes()
    assert saved == pytest.approx(whole * (1 - share), rel=0.01)  # scales; biases, norms, positions in 16 bits


def test_that_autocast_and_16_bit_weights_are_not_taken_together() -> None:
    levels = (("precision", "bf16"), ("weight_dtype", "bf16"))
    assert "autocast" in registry.problems(RunConfig(workload="generate", levels=levels), CPU)["weight_dtype"]
