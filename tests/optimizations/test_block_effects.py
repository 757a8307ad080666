"""What can be seen from outside of toggles of a block: its operators and their dtypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from toggle_bench import (
    CPU,
    DEVICES,
    OperatorLog,
    config_with,
    loss_and_gradients,
    operators,
    run_of,
    running,
    small_gpt2,
    tokens,
)

from explorer.config import RunConfig
from explorer.engine.no_waits import no_waits
from explorer.optimizations import float8, registry
from explorer.optimizations.base import Run


@contextmanager
def compiled_blocks(run: Run) -> Iterator[None]:
    """While entered, the blocks of ``run`` run compiled, without Inductor; one graph must serve them all."""
    blocks = run.model.transformer.h
    for block in blocks:
        block.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    torch._dynamo.utils.counters.clear()
    yield
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for block in blocks:
        del block.__dict__["_compiled_call_impl"]
    torch._dynamo.reset()


# ---- gelu


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("level", "fused"), [("hf", False), ("torch", True)])
def test_that_torch_gelu_is_one_operator_each_way(level: str, fused: bool, device: str) -> None:
    with running("gelu", level, device=device) as run:
        seen = operators(run).seen
    assert (seen["gelu"], seen["gelu_backward"]) == ((3, 3) if fused else (0, 0))
    assert (seen["tanh"] == 0) == fused


@pytest.mark.gpu
def test_that_triton_gelu_leaves_torch_no_activation_to_compute() -> None:
    with running("gelu", "triton", device="cuda") as run:
        seen = operators(run).seen
        assert {type(b.mlp.act).__name__ for b in run.model.transformer.h} == {"TritonGelu"}
    assert seen["gelu"] == seen["tanh"] == seen["pow"] == 0


def test_that_gelu_refuses_a_model_with_another_activation() -> None:
    run = run_of(small_gpt2(activation_function="gelu"), config_with("gelu", "torch"))
    with pytest.raises(ValueError, match=r"'gelu'; allowed: gelu_new"), ExitStack() as stack:
        registry.enter(stack, run)


# ---- layer_norm


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_that_the_triton_norm_leaves_torch_none_and_gives_its_gradients(precision: str, device: str) -> None:
    results = []
    for level in ("torch", "triton"):
        config = registry.with_level(RunConfig(levels=(("layer_norm", level),)), "precision", precision)
        run = run_of(small_gpt2(width=64), dataclasses.replace(config, init_scale=128.0), device)
        seen: list[torch.dtype] = []
        with ExitStack() as stack:
            registry.enter(stack, run)
            names = [name for name, _ in run.model.named_parameters()]
            run.model.transformer.h[1].ln_2.register_forward_hook(lambda *args, seen=seen: seen.append(args[2].dtype))
            with OperatorLog() as log:
                results.append((*loss_and_gradients(run, tokens(2, 24, device)), names, seen, log.seen))
    (loss, gradients, names, seen, _), (own_loss, own_gradients, own_names, own_seen, log) = results
    assert log["native_layer_norm"] == log["native_layer_norm_backward"] == 0
    assert own_names == names
    # Under autocast torch's norm gives float32, and the product casts it.
    assert (seen, own_seen) == ([torch.float32], [torch.float16 if precision == "fp16" else torch.float32])
    assert own_loss == pytest.approx(loss, rel=1e-6 if precision == "fp32" else 1e-4)
    allowed = 1e-5 if precision == "fp32" else 2e-3  # seen: 3e-7 and 7e-4
    assert (own_gradients - gradients).norm() < allowed * gradients.norm()


NEW = (("gelu", "triton_bias"), ("qkv_gradient", "joined"), ("layer_norm", "residual"))


@pytest.mark.parametrize("levels", [*((level,) for level in NEW), NEW], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_that_kernels_that_sum_biases_give_all_gradients(levels: tuple[tuple[str, str], ...], device: str) -> None:
    ids = tokens(2, 24, device)
    plain = run_of(small_gpt2(width=64, layers=2), RunConfig(), device)
    loss, gradients = loss_and_gradients(plain, ids)
    names = [name for name, _ in plain.model.named_parameters()]
    classes = [type(module) for module in plain.model.modules()]
    plain.config = RunConfig(levels=levels)
    with ExitStack() as stack:
        registry.enter(stack, plain)
        assert [name for name, _ in plain.model.named_parameters()] == names
        found = [loss_and_gradients(plain, ids)]
        with compiled_blocks(plain):
            found.append(loss_and_gradients(plain, ids))
    for own_loss, own_gradients in found:
        assert own_loss == pytest.approx(loss, rel=1e-6)
        assert (own_gradients - gradients).norm() < 1e-5 * gradients.norm()
    assert [type(module) for module in plain.model.modules()] == classes


# ---- linear


@pytest.mark.parametrize("device", DEVICES)
def test_that_rows_use_the_whole_range_of_float8_and_lose_a_sixteenth_at_most(device: str) -> None:
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(1)).to(device) * torch.logspace(-8, 8, 5)[
        :, None
    ].to(device)
    x[2] = 0
    rows, factors = float8.rows_to_float8(x)
    assert (rows.dtype, rows.shape, factors.shape) == (torch.float8_e4m3fn, x.shape, (5, 1))
    assert rows.float().abs().amax(1).tolist() == [448.0, 448.0, 0.0, 448.0, 448.0]
    back = rows.double() * factors.double()
    # Half a step of 3 bits; below 2^-6 of the format, 448 / 2^-6 under the largest, half of its smallest step.
    allowed = torch.maximum(x.double().abs() / 16, factors.double() * 2.0**-10)
    assert bool(((back - x.double()).abs() <= allowed * 1.001).all())


@pytest.mark.parametrize("device", DEVICES)
def test_that_a_float8_product_is_that_of_the_rounded_numbers_and_so_is_its_gradient(device: str) -> None:
    draw = torch.Generator().manual_seed(2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, dy = (torch.randn(24, n, generator=draw).to(device, dtype) for n in (32, 64))
    weight = torch.randn(32, 64, generator=draw).to(device).requires_grad_()
    x.requires_grad_()

    def rounded(rows: torch.Tensor) -> torch.Tensor:
        numbers, factors = float8.rows_to_float8(rows.detach())
        return numbers.double() * factors.double()

    y = float8.product(x, weight)
    dx, dw = torch.autograd.grad(y, (x, weight), dy)
    # On a GPU the results are rounded to bfloat16, by one part in 512 at most, and some sums are of fewer bits.
    close = {"rtol": 4e-3, "atol": 2e-2} if device == "cuda" else {"rtol": 0.0, "atol": 1e-4}
    torch.testing.assert_close(y.double(), rounded(x) @ rounded(weight.t()).t(), **close)
    torch.testing.assert_close(dx.double(), rounded(dy) @ rounded(weight).t(), **close)
    torch.testing.assert_close(dw.double(), x.detach().double().t() @ dy.double(), **close)
    assert (y.dtype, dx.dtype, dw.dtype) == (dtype, dtype, torch.float32)


def test_that_float8_products_go_with_the_kernels_that_take_a_projection_apart_and_with_compile() -> None:
    ids = tokens(2, 24)
    run = run_of(small_gpt2(width=64, layers=2), RunConfig())
    exact = loss_and_gradients(run, ids)
    classes = [type(module) for module in run.model.modules()]
    found = []
    for levels in ((), NEW):
        run.config = RunConfig(levels=(*levels, ("linear", "fp8")))
        with ExitStack() as stack:
            registry.enter(stack, run)
            with OperatorLog() as log:
                found.append(loss_and_gradients(run, ids))
            assert log.seen["_scaled_mm"] == 2 * 4 * 2, "forward and back, four in each of two blocks"
            with compiled_blocks(run):
                found.append(loss_and_gradients(run, ids))
    for loss, gradients in found:
        assert loss == pytest.approx(exact[0], rel=1e-2)
        assert 0.05 < (gradients - exact[1]).norm() / exact[1].norm() < 0.25
        # Rounded alike; where a sum in another order falls across the border of a rounding, a number moves a step.
        assert (gradients - found[0][1]).norm() < 0.05 * exact[1].norm()
    assert [type(module) for module in run.model.modules()] == classes
    assert not any(hasattr(module, float8.PRODUCT) for module in run.model.modules())


def test_that_float8_is_refused_where_the_card_has_no_units_for_it() -> None:
    config = registry.with_level(config_with("linear", "fp8"), "precision", "bf16")
    ampere = dataclasses.replace(CPU, id="cuda:0", kind="cuda", name="A100", capability=(8, 0), bf16=True)
    ada = dataclasses.replace(ampere, name="L4", capability=(8, 9))
    assert "8.9 or newer; this device has 8.0" in registry.problems(config, ampere)["linear"]
    assert "linear" not in registry.problems(config, ada)
    half = registry.with_level(config, "precision", "fp16")
    assert "bfloat16" in registry.problems(half, ada)["linear"]


# ---- residual


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("level", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_that_the_residual_stream_is_of_its_format_through_all_blocks(
    level: str, dtype: torch.dtype, device: str
) -> None:
    config = registry.with_level(RunConfig(levels=(("precision", "bf16"),)), "residual", level)
    run = run_of(small_gpt2(width=64), config, device)
    seen: list[torch.dtype] = []
    with ExitStack() as stack:
        registry.enter(stack, run)
        for block in run.model.transformer.h:
            block.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
            block.register_full_backward_hook(lambda module, grads, outs: seen.append(outs[0].dtype))
        loss_and_gradients(run, tokens(2, 8, device))
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert seen == [dtype] * 6


@pytest.mark.parametrize("device", DEVICES)
def test_that_norms_and_stream_are_compiled_with_the_model(device: str) -> None:
    """On the CPU without bfloat16, which Triton's interpreter cannot do."""
    levels = [("layer_norm", "triton"), ("attention", "causal")]
    levels += [("precision", "bf16"), ("residual", "bf16")] if device == "cuda" else []
    run = run_of(small_gpt2(), RunConfig(levels=tuple(levels)), device)
    ids = tokens(2, 24, device)
    with ExitStack() as stack:
        registry.enter(stack, run)
        stack.enter_context(no_waits())
        stack.callback(torch._dynamo.reset)
        loss, gradients = loss_and_gradients(run, ids)
        with compiled_blocks(run):
            compiled_loss, compiled_gradients = loss_and_gradients(run, ids)
    assert compiled_loss == pytest.approx(loss, rel=1e-6 if device == "cpu" else 1e-3)
    assert (compiled_gradients - gradients).norm() < (1e-5 if device == "cpu" else 1e-2) * gradients.norm()


@pytest.mark.parametrize("device", DEVICES)
def test_that_a_bf16_stream_is_compiled_with_the_whole_model(device: str) -> None:
    config = RunConfig(levels=(("attention", "causal"), ("precision", "bf16"), ("residual", "bf16")))
    run = run_of(small_gpt2(), config, device)
    ids = tokens(2, 24, device)
    with ExitStack() as stack:
        registry.enter(stack, run)
        stack.enter_context(no_waits())
        stack.callback(torch._dynamo.reset)
        loss, gradients = loss_and_gradients(run, ids)
        run.model.compile(backend="aot_eager", fullgraph=True, dynamic=False)
        compiled_loss, compiled_gradients = loss_and_gradients(run, ids)
    assert compiled_loss == pytest.approx(loss, rel=1e-3)
    assert (compiled_gradients - gradients).norm() < 1e-2 * gradients.norm()


def test_that_float8_is_refused_for_widths_that_a_gpu_does_not_multiply_in_it() -> None:
    run = run_of(small_gpt2(width=40), config_with("linear", "fp8"))
    with ExitStack() as stack:
        registry.enter(stack, run)  # a CPU multiplies any
    run.device = torch.device("cuda")
    allowed = r"projection of (40|160) inputs and (40|120|160) outputs; allowed: multiples of 16"
    with pytest.raises(ValueError, match=allowed), registry.by_name("linear").applied(run, "fp8"):
        pass
