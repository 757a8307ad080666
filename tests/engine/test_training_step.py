from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch.utils import benchmark
from transformers import GPT2LMHeadModel, masking_utils
from waits import watched_waits

from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.no_waits import no_waits
from explorer.engine.session import Session
from explorer.engine.training import TrainingLoop, make_optimizer, train_step
from explorer.optimizations.base import Run
from explorer.optimizations.registry import enter, with_level


def tiny_run(folder: Path, device: str = "cpu", **settings: float) -> Run:
    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").to(device)
    model.eval()  # no dropout: the reference has none
    run = Run(config=RunConfig(**settings), device=torch.device(device), model=model)  # type: ignore[arg-type]
    run.optimizer = make_optimizer(run)
    return run


def reference_steps(
    folder: Path, batches: list[torch.Tensor], lr: float, decay: float, clip: float
) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Loss, gradient norm and final weights by the formulas of Loshchilov and Hutter 2019, in float64."""
    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    named = dict(model.named_parameters())
    first = {name: torch.zeros_like(p) for name, p in named.items()}
    second = {name: torch.zeros_like(p) for name, p in named.items()}
    losses, norms = [], []
    for t, tokens in enumerate(batches, start=1):
        logits = model(tokens).logits[:, :-1]
        picked = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])
        loss = -picked.mean()
        grads = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads.values()))
        shrink = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        with torch.no_grad():
            for name, p in named.items():
                g = grads[name] * shrink
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g**2
                p *= 1 - lr * decay
                p -= lr * (first[name] / (1 - 0.9**t)) / ((second[name] / (1 - 0.999**t)).sqrt() + 1e-8)
        losses.append(float(loss.detach()))
        norms.append(norm)
    return losses, norms, {name: p.detach() for name, p in named.items()}


@pytest.mark.parametrize("clip", [1.0, 0.0], ids=["clipped", "unclipped"])
def test_that_three_steps_are_adamw_on_the_next_token_loss(tiny_model: Path, clip: float) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(0, 8192, (2, 16), generator=generator) for _ in range(3)]
    lr, decay = 1e-3, 0.1
    losses, norms, weights = reference_steps(tiny_model, batches, lr, decay, clip)
    run = tiny_run(tiny_model, lr=lr, weight_decay=decay, grad_clip=clip)
    for tokens, loss, norm in zip(batches, losses, norms, strict=True):
        got_loss, got_norm = train_step(run, tokens)
        assert float(got_loss) == pytest.approx(loss, rel=2e-5)
        assert float(got_norm) == pytest.approx(norm, rel=2e-4)
    moved = {name: (p.detach().double() - weights[name]).abs().max() for name, p in run.model.named_parameters()}
    # Adam divides by the gradient's own size, so float32 noise in a tiny gradient moves a weight by up to its whole
    # step of lr: compare in units of it. Measured: 0.02 lr.
    assert max(moved.values()) < 0.2 * lr


def test_that_a_step_with_a_scaler_is_the_same_step(tiny_model: Path) -> None:
    tokens = torch.randint(0, 8192, (2, 16), generator=torch.Generator().manual_seed(0))
    plain, scaled = tiny_run(tiny_model), tiny_run(tiny_model)
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss, norm = train_step(plain, tokens)
    loss_scaled, norm_scaled = train_step(scaled, tokens)
    assert float(loss_scaled) == float(loss)
    assert float(norm_scaled) == pytest.approx(float(norm), rel=1e-6)
    for p, q in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


def test_that_a_step_whose_gradients_overflow_leaves_the_weights_alone(tiny_model: Path) -> None:
    run = tiny_run(tiny_model)
    run.model.transformer.ln_f.weight.data.mul_(1e4)  # gradients whose scaled values leave float32's range
    run.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    before = [p.detach().clone() for p in run.model.parameters()]
    tokens = torch.randint(0, 8192, (2, 16), generator=torch.Generator().manual_seed(0))
    _, norm = train_step(run, tokens)
    assert not math.isfinite(float(norm))
    assert run.scaler.get_scale() == 2.0**125
    for p, kept in zip(run.model.parameters(), before, strict=True):
        assert torch.equal(p, kept)


def test_that_masks_made_without_waiting_are_transformers_own_and_leave_no_trace(tiny_model: Path) -> None:
    model = tiny_run(tiny_model).model
    asked = {"config": model.config, "inputs_embeds": torch.zeros(2, 6, 32), "past_key_values": None}
    padding = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    detect = masking_utils.find_packed_sequence_indices
    for attention_mask in (None, padding):
        positions = torch.arange(6)[None]
        own = masking_utils.create_causal_mask(**asked, attention_mask=attention_mask, position_ids=positions)
        with no_waits():
            assert masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"] is not masking_utils.eager_mask
            ours = masking_utils.create_causal_mask(**asked, attention_mask=attention_mask, position_ids=positions)
        assert ours.dtype == own.dtype
        assert torch.equal(ours, own)
    assert masking_utils.find_packed_sequence_indices is detect
    assert masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"] is masking_utils.eager_mask


@pytest.mark.gpu
@pytest.mark.parametrize("levels", [{}, {"attention": "sdpa", "precision": "bf16", "gelu": "triton"}], ids=str)
def test_that_a_step_never_makes_the_host_wait(tiny_model: Path, levels: dict[str, str]) -> None:
    run = tiny_run(tiny_model, "cuda")
    for name, level in levels.items():
        run.config = with_level(run.config, name, level)
    run.model.train()
    tokens = torch.randint(0, 8192, (2, 16), device="cuda")
    with ExitStack() as toggles:
        toggles.enter_context(no_waits())
        enter(toggles, run)
        train_step(run, tokens)  # loads and compiles kernels
        with watched_waits("error"):
            for _ in range(3):
                train_step(run, tokens)


@pytest.mark.gpu
@pytest.mark.alone
def test_that_a_step_takes_as_long_as_torchs_own_benchmark_says() -> None:
    device = environment().device("cuda")
    config = RunConfig(batch=8, levels=(("attention", "sdpa"), ("dropout", "off"), ("precision", "bf16")))
    with Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False) as session:
        session.begin_segment(0)
        loop = session.loop
        assert isinstance(loop, TrainingLoop)

        # The very steps: the host's pace changes from second to second.
        timer = benchmark.Timer("loop.step()", globals={"loop": loop})
        timer.timeit(10)  # kernels load, clocks settle
        torchs = timer.timeit(30).mean * 1e3
        ours = statistics.mean(sample.step_ms for sample in loop.collect(all_of_them=True)[-30:])
    assert ours == pytest.approx(torchs, rel=0.01)
