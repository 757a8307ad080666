"""optimizer: whether AdamW's update of all weights is a handful of kernels over lists of tensors, or one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile, listed

UPDATES = {
    "foreach": r"PointwiseOp\w*Functor|^aten::addcdiv_$",
    "fused": r"FusedAdamMath|^aten::_fused_adamw_$",
}
"""The kernel (on the CPU operator) that changes the weights, by level. Source: torch's ForeachPointwiseOp.cu,
FusedAdamWKernel.cu and optim/adam.py, which on the CPU goes over the tensors one by one instead of by lists."""


def _updates(level: str) -> Callable[[Profile], Evidence]:
    """Proof that the weights were changed by ``level``'s kernel and by no other's."""

    def judge(profile: Profile) -> Evidence:
        own = profile.matching(UPDATES[level])
        others = [k for other, pattern in UPDATES.items() if other != level for k in profile.matching(pattern)]
        seen = f"updated by {listed(own)}"
        if others:
            seen += f"; of another level: {listed(others)}"
        return Evidence(shown=bool(own) and not others, seen=seen)

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
    )
    help = (
        "AdamW reads each weight, its gradient and its two averages, and writes all but the gradient. Written as "
        "operations on lists of tensors, each part of the formula goes through memory on its own, with temporary lists "
        "in between. The fused kernel reads and writes each number once. Switched within a run, the averages and the "
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
"""
    # Of lists of operations one list of results is kept: the square roots, to be divided by.
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "foreach": MemoryTerms(update_bytes=4),
        "fused": MemoryTerms(update_bytes=0),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {level: _updates(level) for level in UPDATES}

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(optimizer=("fused=True",))

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.optimizer_state import remade

        with remade(run, fused=True, foreach=False):
            yield
