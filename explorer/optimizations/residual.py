"""residual: the number format of the stream that every block adds to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.layer_norm import SUMS
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile


def _adds(dtype: str) -> Callable[[Profile], Evidence]:
    """Proof that both sums of every block, and what autograd adds up on the way back, gave ``dtype``."""

    def judge(profile: Profile) -> Evidence:
        adds = profile.residual_adds
        # layer_norm=residual does one of the two within its kernel, in the format of the other.
        within = profile.count(SUMS[0])
        enough = 0 < 2 * profile.blocks_passed <= within + sum(tally.count for tally in adds) and bool(adds)
        seen = ", ".join(f"{tally.dtype} x{tally.count}" for tally in adds) or "none"
        return Evidence(shown=enough and all(t.dtype == dtype for t in adds), seen=f"sums over the stream: {seen}")

    return judge


class Residual(Optimization):
    name = "residual"
    label = "Residual stream"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(
            id="fp32", label="float32", help="As autocast leaves it: the embeddings are float32, and so is each sum."
        ),
        Level(id="bf16", label="bfloat16", help="Cast once, after the embeddings: all sums are in bfloat16."),
    )
    help = (
        "Every block adds its two results to one stream, from the embeddings to the last norm. Under autocast that "
        "stream is float32, since the embeddings are, though what is added comes out of 16-bit products. Cast to "
        "bfloat16 after the embeddings, sums, norms and gradients along the stream move half the bytes, and half as "
        "much is kept for the backward pass."
    )
    cost = (
        "Each of 24 sums is rounded to 8 bits: parity says what that does to loss and gradients at your shapes. "
        "Without torch.compile or the Triton norm each norm casts the stream back to float32, which eats the gain."
    )
    expect = "Some per cent of a compiled step, more of one by the Triton norm, and less memory; parity decides."
    source = "Shoeybi et al. 2019, arXiv:1909.08053; Megatron-LM's --fp32-residual-connection keeps the other way"
    code = """\
def to_bf16(module, args, output):
    return output.to(torch.bfloat16)

model.transformer.drop.register_forward_hook(to_bf16)  # after the embeddings
"""
    needs = (
        Needs(
            level="bf16",
            other="precision",
            allowed=("bf16",),
            reason="the stream takes the format of the products that are added to it",
        ),
    )
    # Largest seen on a three-layer model's gradients on the CPU, where bf16 products alone give 1.4e-2.
    tolerance: ClassVar[Mapping[str, float]] = {"bf16": 3e-2}
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "fp32": MemoryTerms(stream_bytes=4),
        "bf16": MemoryTerms(stream_bytes=2),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"fp32": _adds("float32"), "bf16": _adds("bfloat16")}

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(
            setup="model.transformer.drop.register_forward_hook(lambda module, args, out: out.to(torch.bfloat16))"
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        import torch

        def cast(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            return output.to(torch.bfloat16)

        # The dropout after the embeddings is called whatever its probability: the one place that all of them pass.
        hook = run.model.transformer.drop.register_forward_hook(cast)
        try:
            yield
        finally:
            hook.remove()
