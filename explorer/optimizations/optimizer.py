"""optimizer: AdamW's update of all weights by a handful of kernels over lists, by one, or with clipping in that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile, listed

FOREACH = r"PointwiseOp\w*Functor|^aten::addcdiv_$"
FUSED = r"FusedAdamMath|^aten::_fused_adamw_$"
"""The kernel (on the CPU operator) that changes the weights. Source: torch's ForeachPointwiseOp.cu,
FusedAdamWKernel.cu and optim/adam.py, which on the CPU goes over the tensors one by one instead of by lists."""


def _updates(level: str) -> Callable[[Profile], Evidence]:
    """Proof that the weights were changed by ``level``'s kernel and by no other's, and how gradients were clipped."""

    def judge(profile: Profile) -> Evidence:
        own, other = map(profile.matching, (FOREACH, FUSED) if level == "foreach" else (FUSED, FOREACH))
        seen = f"updated by {listed(own)}"
        if other:
            seen += f"; of another level: {listed(other)}"
        passes, divisors = map(profile.operator_count, ("aten::_foreach_mul_", "aten::clamp_min"))
        fits = True
        if level != "foreach":
            fits = bool(divisors) == (level == "fused_clip") and not (divisors and passes)
            seen += f"; gradients multiplied in {passes} passes, divided {'in it' if divisors else 'nowhere'}"
        return Evidence(shown=bool(own) and not other and fits, seen=seen)

    return judge


class FusedOptimizer(Optimization):
    name = "optimizer"
    label = "AdamW"
    tier = "framework"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = (
        Level(
            id="foreach", label="foreach", help="torch's default: each part of the formula over all weights at once."
        ),
        Level(id="fused", label="fused", help="The whole formula in one pass over weights, gradients and averages."),
        Level(
            id="fused_clip",
            label="fused, clips too",
            help="The same pass also shortens the gradients to the clipping norm as it reads them.",
        ),
    )
    help = (
        "AdamW reads each weight, its gradient and its two averages, and writes all but the gradient. Written as "
        "operations on lists of tensors, each part of the formula goes through memory on its own, with temporary lists "
        "in between. The fused kernel reads and writes each number once. Clipping by norm is one more pass that reads "
        "and writes all gradients, which the fused kernel can do as well. Switched within a run, the averages and the "
        "step count go on."
    )
    cost = (
        "Nothing but rounding in another order. The update is a small part of a step with many tokens, so the larger "
        "the batch the less it gains. With float16 it also spares the host a wait for the scaler in each step."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024, bf16, SDPA, fused GeLU, dropout off: from 54.0 to 47.0 ms a step."
    )
    source = (
        "Loshchilov and Hutter 2019, arXiv:1711.05101; docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html"
    )
    code = """\
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)

norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])  # in place of clip_grad_norm_
optimizer.grad_scale = (norm + 1e-6).clamp_min(1.0)  # the fused kernel divides by it; clips at a norm of 1
optimizer.step()
"""
    # Of lists of operations one list of results is kept: the square roots, to be divided by.
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "foreach": MemoryTerms(update_bytes=4),
        "fused": MemoryTerms(update_bytes=0),
        "fused_clip": MemoryTerms(update_bytes=0),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        level: _updates(level) for level in ("foreach", "fused", "fused_clip")
    }
    needs = (
        Needs(
            level="fused_clip",
            other="precision",
            allowed=("fp32", "tf32", "bf16"),
            reason="fp16's gradient scaler sets the same divisor of the gradients for itself",
        ),
    )

    def unfit(self, level: str, config: RunConfig) -> str | None:
        if level == "fused_clip" and not config.grad_clip:
            return "no gradient is clipped: the clipping norm is 0"
        return None

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "fused":
            return Snippet(optimizer=("fused=True",))
        return Snippet(
            optimizer=("fused=True",),
            clip=(
                "norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])\n"
                f"optimizer.grad_scale = ((norm + 1e-6) / {config.grad_clip!r}).clamp_min(1.0)  # divides the gradients"
            ),
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.optimizer_state import remade

        run.clips_in_update = level == "fused_clip"
        try:
            with remade(run, fused=True, foreach=False):
                yield
        finally:
            run.clips_in_update = False
