"""dropout: whether training zeroes activations at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile

DRAWS = ("aten::native_dropout", "aten::bernoulli_")
"""Operators that draw a dropout mask, on CUDA and on the CPU. Source: torch's Dropout.cpp."""


def _draws(profile: Profile) -> str:
    """What drew masks, in words; empty where nothing did. Fused attention draws within its kernel."""
    seen = [f"{profile.operator_count(name)} {name}" for name in DRAWS if profile.operator_count(name)]
    if profile.attention_dropout:
        seen.append(f"attention with probability {profile.attention_dropout:g}")
    return ", ".join(seen)


def _drops(profile: Profile) -> Evidence:
    seen = _draws(profile)
    return Evidence(shown=bool(seen), seen=seen or "no mask was drawn: the model's own probabilities may be 0")


def _drops_nothing(profile: Profile) -> Evidence:
    seen = _draws(profile)
    return Evidence(shown=not seen, seen=seen or "no mask was drawn")


class Dropout(Optimization):
    name = "dropout"
    label = "Dropout"
    # A setting that every framework has, not another algorithm or kernel: nothing is replaced, only left out.
    tier = "framework"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="gpt2", label="as in GPT-2 (0.1)", help="As the model came; GPT-2's probabilities are 0.1."),
        Level(id="off", label="off", help="Every dropout probability is 0."),
    )
    help = (
        "GPT-2 zeroes a random tenth of its activations in training: after the embeddings, in the attention "
        "weights and after each block's two halves. That draws random numbers, writes masks and keeps them for the "
        "backward pass. Models trained on more text than they can memorize do well without it."
    )
    cost = (
        "It changes training, not only its speed: without dropout a small text is overfitted sooner. Generation "
        "never uses dropout."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024, bf16 with SDPA: from 63.2 ms a step and 12.4 GiB to 54.0 ms and "
        "8.9 GiB together with torch's fused GeLU."
    )
    source = "Srivastava et al. 2014, jmlr.org/papers/v15/srivastava14a.html; nanoGPT trains GPT-2 at dropout 0"
    code = """\
for module in model.modules():
    if isinstance(module, torch.nn.Dropout):
        module.p = 0.0
"""
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "gpt2": MemoryTerms(drops=True),
        "off": MemoryTerms(drops=False),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"gpt2": _drops, "off": _drops_nothing}
    # Compared at dropout off, where this toggle is the reference itself.

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(setup=self.code)

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        import torch

        before = [(m, m.p) for m in run.model.modules() if isinstance(m, torch.nn.Dropout)]
        for module, _ in before:
            module.p = 0.0
        try:
            yield
        finally:
            for module, p in before:
                module.p = p
