"""What can be seen from outside while attention is on: the kernels that run, the masks that are made."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from toggle_bench import (
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
from explorer.optimizations import registry
from explorer.optimizations.base import Run

KERNELS = {
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
}
TRITON_HEAD = {"width": 64, "heads": 2}  # 32 numbers a head


def attention_kernels(run: Run) -> set[str]:
    return set(operators(run).seen) & KERNELS


@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_naive_attention_normalizes_the_whole_matrix_without_a_kernel(workload: str) -> None:
    with running("attention", "naive", workload=workload) as run:
        log = operators(run)
    assert not set(log.seen) & KERNELS
    assert log.seen["_softmax"] == 3  # blocks


@pytest.mark.parametrize(
    ("level", "kernels"),
    [
        ("sdpa", {"_scaled_dot_product_flash_attention_for_cpu"}),
        ("causal", {"_scaled_dot_product_flash_attention_for_cpu"}),
        ("math", set()),
    ],
)
@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_sdpa_on_the_cpu_runs_its_kernel_unless_math_is_forced(
    level: str, kernels: set[str], workload: str
) -> None:
    with running("attention", level, workload=workload) as run:
        assert attention_kernels(run) == kernels


@pytest.mark.parametrize("level", ["sdpa", "causal"])
def test_that_sdpa_leaves_cudnn_out_in_generation_only(level: str) -> None:
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with running("attention", level, workload="generate"):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    with running("attention", level):
        assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("level", "kernels"),
    [
        ("flash", {"_scaled_dot_product_flash_attention"}),
        ("efficient", {"_scaled_dot_product_efficient_attention"}),
        ("cudnn", {"_scaled_dot_product_cudnn_attention"}),
        ("math", set()),
    ],
)
@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_a_forced_kernel_is_the_one_that_runs(level: str, kernels: set[str], workload: str) -> None:
    with running("attention", level, device="cuda", workload=workload) as run:
        assert attention_kernels(run) == kernels


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch warns of each reason before it raises
def test_that_a_forced_kernel_that_cannot_run_raises() -> None:
    run = run_of(small_gpt2(width=64), RunConfig(levels=(("attention", "flash"),)), "cuda")
    with ExitStack() as stack:
        registry.enter(stack, run)
        with pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"):
            loss_and_gradients(run, tokens(2, 24, "cuda"))  # flash in float32


@pytest.mark.parametrize("device", DEVICES)
def test_that_only_the_half_softmax_runs_in_half(device: str) -> None:
    with running("precision", "bf16", device=device) as run:
        assert operators(run).softmax_dtypes == {torch.float32}
    with running("attention", "naive_half", device=device) as run:
        assert operators(run).softmax_dtypes == {torch.bfloat16}


def test_that_sdpa_training_is_causal_by_its_flag_and_builds_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def listening(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(kwargs)
        return attend(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", listening)
    with running("attention", "sdpa") as run:
        loss_and_gradients(run, tokens(2, 24))
    assert [(c["attn_mask"], c["is_causal"]) for c in calls] == [(None, True)] * 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("level", ["causal", "math"])
def test_that_no_mask_is_made_under_torch_compile_either(level: str, device: str) -> None:
    masks: list[Any] = []

    def listening(graph: torch.fx.GraphModule, _: Any) -> Any:
        masks.extend(node.kwargs["attn_mask"] for node in graph.graph.nodes if "scaled_dot_product" in str(node.target))
        return graph

    with running("attention", level, device=device) as run, no_waits():
        compiled = torch.compile(run.model, backend=listening, fullgraph=True)
        ids = tokens(2, 24, device)
        loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
        torch.testing.assert_close(loss, run.model(input_ids=ids, labels=ids, use_cache=False).loss)
    torch._dynamo.reset()
    assert masks == [None] * 3  # blocks


@pytest.mark.parametrize("level", ["causal", "triton"])
def test_that_attention_without_a_mask_refuses_padding(level: str) -> None:
    run = run_of(small_gpt2(**TRITON_HEAD), config_with("attention", level))
    with ExitStack() as stack:
        registry.enter(stack, run)
        with pytest.raises(ValueError, match="causal and triton take unpadded text only"):
            run.model(input_ids=tokens(2, 8), attention_mask=torch.ones(2, 8))


def test_that_triton_attention_refuses_heads_and_dropout_that_it_cannot_do() -> None:
    run = run_of(small_gpt2(width=16), config_with("attention", "triton"))
    with pytest.raises(ValueError, match="heads have 8 numbers; allowed: 16, 32, 64, 128"), ExitStack() as stack:
        registry.enter(stack, run)
    run = run_of(small_gpt2(dropout=0.1, **TRITON_HEAD), RunConfig(levels=(("attention", "triton"),)))
    with ExitStack() as stack:
        registry.enter(stack, run)
        with pytest.raises(ValueError, match=r"dropout is 0\.1, with no mask"):
            run.model(input_ids=tokens(2, 8))


@pytest.mark.parametrize("device", DEVICES)
def test_that_triton_attention_leaves_torch_none_to_compute_and_gives_its_gradients(device: str) -> None:
    """On the CPU the kernel runs in Triton's interpreter."""
    results = []
    for level in ("sdpa", "triton"):
        run = run_of(small_gpt2(**TRITON_HEAD), RunConfig(levels=(("attention", level),)), device)
        with ExitStack() as stack:
            registry.enter(stack, run)
            with OperatorLog() as log:
                results.append(loss_and_gradients(run, tokens(2, 40, device)))
    assert not set(log.seen) & {*KERNELS, "_softmax", "bmm"}
    (loss, gradients), (own_loss, own_gradients) = results
    assert own_loss == pytest.approx(loss, rel=1e-6)
    assert (own_gradients - gradients).norm() < 1e-5 * gradients.norm()  # 3e-7 seen


@pytest.mark.parametrize("level", ["sdpa", "math", "naive_half"])
def test_that_padding_is_not_attended_to(level: str) -> None:
    """Three tokens of padding on the left leave the logits of the rest as they are without it."""
    ids = tokens(2, 9)
    padded = torch.cat([torch.full((2, 3), 5), ids], dim=1)
    mask = torch.ones_like(padded)
    mask[:, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        plain = small_gpt2(width=64).eval()(input_ids=ids).logits
        with running("attention", level, workload="generate") as run:
            out = run.model(input_ids=padded, attention_mask=mask, position_ids=positions).logits[:, 3:].float()
    tolerance = 3e-2 if level == "naive_half" else 1e-5  # bfloat16: 1.1e-2 seen; float32: 3.8e-7
    assert (out - plain).norm() / plain.norm() < tolerance
