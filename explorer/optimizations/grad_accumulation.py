"""grad_accumulation: a batch at once, or in parts whose gradients add up before the one update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile

PARTS = (1, 2, 4, 8)


def _passes(parts: int) -> Callable[[Profile], Evidence]:
    """Proof that a step looked its tokens and positions up ``parts`` times: recomputed blocks do not do that again."""

    def judge(profile: Profile) -> Evidence:
        found = profile.operator_count("aten::embedding")
        return Evidence(shown=found == 2 * parts, seen=f"{found} lookups of embeddings in a step, two a forward pass")

    return judge


class GradAccumulation(Optimization):
    name = "grad_accumulation"
    label = "Gradient accumulation"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = (
        Level(id="1", label="off", help="One forward and backward pass over the whole batch."),
        *(Level(id=str(n), label=f"{n} parts", help=f"{n} passes, each over 1/{n} of the batch.") for n in PARTS[1:]),
    )
    help = (
        "The gradient of a batch is the mean of its parts' gradients. So it can go through the model in parts, one "
        "after another: each leaves its share in the gradients, and clipping and the update come once, at the end. "
        "Activations and logits then take the memory of one part only, and the training is the same."
    )
    cost = (
        "Every part launches all kernels again and casts all weights again, and smaller products fill the GPU less. "
        "Gradients stay in memory meanwhile. Batches must divide into parts of equal size."
    )
    expect = "Memory of activations divided by the parts; time grows where a part alone does not fill the GPU."
    source = "docs.pytorch.org/docs/stable/notes/amp_examples.html, gradient accumulation"
    code = """\
optimizer.zero_grad(set_to_none=True)
for part in tokens.chunk(4):
    loss = model(input_ids=part, labels=part, use_cache=False).loss / 4
    loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
"""
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {str(n): MemoryTerms(micro_batches=n) for n in PARTS}
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {str(n): _passes(n) for n in PARTS}

    def unfit(self, level: str, config: RunConfig) -> str | None:
        if config.batch % int(level) == 0:
            return None
        return f"a batch of {config.batch} does not divide into {level} parts of equal size"

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(micro_batches=int(level))

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        before = run.micro_batches
        run.micro_batches = int(level)
        try:
            yield
        finally:
            run.micro_batches = before
