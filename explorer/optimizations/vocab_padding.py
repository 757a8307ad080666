"""vocab_padding: the vocabulary's rows as they are, or rounded up to a size that tensor cores like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.proof import Evidence, Profile

HEAD = '''\
class PaddedHead(torch.nn.Module):
    """The model's head with more rows than the vocabulary has tokens; gives the tokens' logits only."""

    def __init__(self, weight, vocabulary):
        super().__init__()
        self.weight, self.vocabulary = weight, vocabulary

    def forward(self, hidden):
        return torch.nn.functional.linear(hidden, self.weight)[..., : self.vocabulary]
'''
"""For exported scripts; the module of ``padded_head.py`` is the one that runs here."""

MULTIPLE = 128
"""A whole tile of columns of a matrix product; 50257 becomes 50304, as with 64."""


def padded_to(vocabulary: int) -> int:
    """The next multiple of ``MULTIPLE``."""
    return vocabulary + -vocabulary % MULTIPLE


def _columns(wanted: Callable[[int], int]) -> Callable[[Profile], Evidence]:
    """Proof that the head's product, the widest of all, had as many columns as ``wanted`` makes of the vocabulary."""

    def judge(profile: Profile) -> Evidence:
        found = profile.widest_product
        return Evidence(
            shown=profile.vocabulary > 0 and found == wanted(profile.vocabulary),
            seen=f"the widest product has {found} columns, the vocabulary {profile.vocabulary} tokens",
        )

    return judge


class VocabPadding(Optimization):
    name = "vocab_padding"
    label = "Padded vocabulary"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="off", label="off", help="As the model came: GPT-2 has 50257 tokens, an odd number."),
        Level(id=str(MULTIPLE), label=f"multiple of {MULTIPLE}", help="Rows of zeros fill up: 50257 become 50304."),
    )
    help = (
        "GPT-2's embedding, which is its head's matrix too, has a row for each of 50257 tokens. With an odd number of "
        "columns rows of logits begin at odd addresses, and matrix products fall back to slower kernels. Padded with "
        "rows of zeros to 50304 they run in whole tiles. The extra logits are cut off before the loss, so that they "
        "take no part in it; their rows get no gradient and stay zero."
    )
    cost = (
        "47 more rows, a tenth of a percent. Without torch.compile cutting the logits off takes one more pass over "
        "their gradient, which can eat what it gains."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 64, T = 1024, bf16, SDPA, fused AdamW, the whole model compiled: from 151.8 to "
        "147-150 ms a step."
    )
    source = "nanoGPT's model.py (vocab_size 50304); docs.nvidia.com: matrix multiplication background, section 4"
    code = """\
class PaddedHead(torch.nn.Module):
    def __init__(self, weight, vocabulary):
        super().__init__()
        self.weight, self.vocabulary = weight, vocabulary

    def forward(self, hidden):
        return torch.nn.functional.linear(hidden, self.weight)[..., : self.vocabulary]

weight = model.transformer.wte.weight  # the head's, too; do this before the optimizer is made
vocabulary = weight.shape[0]
weight.data = torch.nn.functional.pad(weight.data, (0, 0, 0, -vocabulary % 128))
model.lm_head = PaddedHead(weight, vocabulary)
"""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "off": _columns(lambda vocabulary: vocabulary),
        str(MULTIPLE): _columns(padded_to),
    }

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(
            definitions=HEAD,
            setup=f"""\
weight = model.transformer.wte.weight  # the head's, too
vocabulary = weight.shape[0]
weight.data = torch.nn.functional.pad(weight.data, (0, 0, 0, -vocabulary % {MULTIPLE}))
model.lm_head = PaddedHead(weight, vocabulary)
""",
        )

    def applied(self, run: Run, level: str) -> AbstractContextManager[None]:
        from explorer.optimizations.padded_head import padded

        return padded(run, padded_to(run.model.transformer.wte.weight.shape[0]))
