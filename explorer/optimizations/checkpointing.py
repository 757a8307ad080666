"""checkpointing: keep fewer activations for the backward pass and compute them again there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile

if TYPE_CHECKING:
    from torch import nn

ABSENT = object()
"""Stands for an attribute that only the class has."""


def _recomputes(every: int | None) -> Callable[[Profile], Evidence]:
    """Proof that each ``every``-th block, from the first on, ran again in the backward pass; None: that none did."""

    def judge(profile: Profile) -> Evidence:
        blocks = len(profile.block_forwards)
        wanted = () if every is None else tuple(range(0, blocks, every))
        found = profile.recomputed_blocks
        seen = f"{len(found)} of {blocks} blocks ran their forward again"
        if found != wanted:
            seen += f", {len(wanted)} should have"
        return Evidence(shown=blocks > 0 and found == wanted, seen=seen)

    return judge


class Checkpointing(Optimization):
    name = "checkpointing"
    label = "Activation checkpointing"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="off", label="off", help="Every activation is kept until the backward pass has used it."),
        Level(id="alternate", label="every second block", help="Half of the blocks keep only their input."),
        Level(id="all", label="every block", help="Each block keeps only its input."),
    )
    help = (
        "A checkpointed transformer block keeps only its input; the backward pass runs the block's forward once "
        "more to get its activations back. Memory then grows with one block's activations, not with all of them, "
        "which makes room for a larger batch. The random state is replayed, so that dropout drops the same "
        "elements again; without dropout it is left alone."
    )
    cost = (
        "Time: one more forward of every checkpointed block, about a third of a step when all are. It saves "
        "nothing where the logits (B x T x 50257 in float32) are the peak, and makes a run that fits already only "
        "slower."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024, bf16, SDPA, fused GeLU and AdamW, dropout off: from 47.0 ms a "
        "step and 8.9 GiB to 79.8 ms and 6.5 GiB with every block."
    )
    source = "Chen et al. 2016, arXiv:1604.06174; docs.pytorch.org/docs/stable/checkpoint.html"
    code = """\
from functools import partial
from torch.utils.checkpoint import checkpoint

for block in model.transformer.h:  # h[::2] for every second one
    block.gradient_checkpointing = True
    block._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
model.train()
loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
"""

    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "off": MemoryTerms(kept_every=0),
        "alternate": MemoryTerms(kept_every=2),
        "all": MemoryTerms(kept_every=1),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "off": _recomputes(None),
        "alternate": _recomputes(2),
        "all": _recomputes(1),
    }

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        blocks = "model.transformer.h[::2]" if level == "alternate" else "model.transformer.h"
        options = "use_reentrant=False" if _drops(config) else "use_reentrant=False, preserve_rng_state=False"
        return Snippet(
            imports=("from functools import partial", "from torch.utils.checkpoint import checkpoint"),
            setup=f"""\
for block in {blocks}:
    block.gradient_checkpointing = True
    block._gradient_checkpointing_func = partial(checkpoint, {options})
""",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from torch.utils.checkpoint import checkpoint

        # Attributes, and not gradient_checkpointing_enable(): each call of that leaves a hook behind on the embedding
        # (seen on transformers 5.17 to 5.22; count wte._forward_hooks). The inner model's own flag makes it pass its
        # blocks no cache, which a second forward would fill twice.
        model = run.model.transformer
        blocks = list(model.h)[:: 2 if level == "alternate" else 1]
        # Reading the random state cannot be recorded as a CUDA graph.
        recompute = partial(checkpoint, use_reentrant=False, preserve_rng_state=_drops(run.config))
        wanted: list[tuple[nn.Module, str, object]] = [(model, "gradient_checkpointing", True)]
        for block in blocks:
            wanted += [(block, "gradient_checkpointing", True), (block, "_gradient_checkpointing_func", recompute)]
        before = [module.__dict__.get(name, ABSENT) for module, name, _ in wanted]
        for module, name, value in wanted:
            setattr(module, name, value)
        try:
            yield
        finally:
            for (module, name, _), value in zip(wanted, before, strict=True):
                if value is ABSENT:
                    delattr(module, name)
                else:
                    setattr(module, name, value)


def _drops(config: RunConfig) -> bool:
    return config.level("dropout") != "off"
