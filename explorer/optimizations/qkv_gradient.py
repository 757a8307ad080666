"""qkv_gradient: how the gradients of queries, keys and values become that of the projection they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

KERNEL = r"^joined_gradient$"
"""Source: kernels/joined_gradient.py."""


def _joins(wanted: bool) -> Callable[[Profile], Evidence]:
    """Proof that each block's gradients were joined by the kernel, or that none were."""

    def judge(profile: Profile) -> Evidence:
        found = profile.count(KERNEL)
        shown = found >= profile.blocks_passed > 0 if wanted else found == 0
        return Evidence(shown=shown, seen=f"the kernel ran {found} times, in {profile.blocks_passed} blocks")

    return judge


class QkvGradient(Optimization):
    name = "qkv_gradient"
    label = "Gradient of q, k, v"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="torch", label="torch", help="Three tensors are copied side by side, then read again for the bias."),
        Level(id="joined", label="joined", help="One Triton kernel copies them and sums the bias's gradient."),
    )
    help = (
        "Queries, keys and values are three parts of one projection, and attention gives their gradients apart. Put "
        "side by side they are the projection's, whose sum over all tokens is its bias's gradient. That sum can be "
        "taken while they are copied, instead of reading all of it once more."
    )
    cost = "Nothing in exactness: the sum is float32, in another order. What it replaces is 2% of a compiled step."
    expect = (
        "On an H200, GPT-2 124M, B = 64, T = 1024, bf16, compiled: 2.1 ms of kernels a step where torch.compile's take "
        "2.5."
    )
    source = "kernels/joined_gradient.py counts the bytes"
    code = """\
from explorer.kernels.joined_gradient import thirds

projected = torch.addmm(c_attn.bias.detach(), x.view(-1, x.shape[-1]), c_attn.weight)
q, k, v = thirds(projected, c_attn.bias)  # gives the bias its gradient
"""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"torch": _joins(False), "joined": _joins(True)}

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "torch":
            return None
        if device.kind != "cuda":
            return "Triton kernels need a CUDA device; this device is a CPU"
        return device.triton_problem

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(
            imports=("from explorer.optimizations.joined_attention import JoinedAttention",),
            setup="for block in model.transformer.h:\n    block.attn.__class__ = JoinedAttention\n",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.joined_attention import JoinedAttention
        from explorer.optimizations.unbiased import of_class

        blocks: Any = run.model.transformer.h
        with of_class([block.attn for block in blocks], JoinedAttention):
            yield
