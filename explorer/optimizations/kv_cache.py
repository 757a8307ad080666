"""kv_cache: what generation keeps of the keys and values of the tokens that it has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal, cast

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.proof import Evidence, Profile

GROWN, WRITTEN = "aten::cat", "aten::index_copy_"
"""The operators that lengthen a dynamic cache by a token and that write one into a static cache: once for keys and
once for values in each block. Source: transformers' cache_utils.py."""


def _kept(operator: str | None) -> Callable[[Profile], Evidence]:
    """Proof that each block's keys and values went through ``operator`` at each pass; None: that they were not kept."""

    def judge(profile: Profile) -> Evidence:
        wanted = 2 * profile.blocks_passed
        counts = {name: profile.operator_count(name) for name in (GROWN, WRITTEN)}
        found = [name for name, count in counts.items() if count >= wanted > 0]
        seen = ", ".join(f"{name} x{count}" for name, count in counts.items())
        return Evidence(shown=wanted > 0 and found == ([] if operator is None else [operator]), seen=seen)

    return judge


class KvCache(Optimization):
    name = "kv_cache"
    label = "KV cache"
    tier = "algorithm"
    stage = Stage.MODULES
    workloads = ("generate",)
    levels = (
        Level(id="dynamic", label="dynamic", help="transformers' default: each token makes every layer's cache anew."),
        Level(id="off", label="off", help="Nothing is kept: each token is a whole pass over the text so far."),
        Level(id="static", label="static", help="Room for the whole text is reserved; a token is written into it."),
    )
    help = (
        "A new token attends to the keys and values of all earlier ones, which do not change: kept, they need not be "
        "computed again, and a token costs one row of work instead of the whole text's. A dynamic cache grows by "
        "concatenation, which copies it at each token. A static one has fixed addresses and shapes, which CUDA graphs "
        "and compilers need."
    )
    cost = (
        "Memory: 2 x layers x width numbers a token and row (36 KiB in 16 bits, GPT-2 124M). A static cache takes it "
        "for the whole text from the start, and its attention looks at the room not used yet, too."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 1: transformers' own generate makes 99 tokens/s with its default cache, and 354 "
        "with a static one, compiled."
    )
    source = "Pope et al. 2022, arXiv:2211.05102, section 2.1; huggingface.co/docs/transformers/kv_cache"
    code = """\
from transformers import StaticCache

cache = StaticCache(config=model.config, max_cache_len=prompt.shape[1] + new_tokens)
logits = model(prompt, past_key_values=cache).logits[:, -1:]
for _ in range(new_tokens):
    token = logits.argmax(-1)
    logits = model(token, past_key_values=cache).logits

model.generate(prompt, use_cache=False)  # off
"""

    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "dynamic": _kept(GROWN),
        "off": _kept(None),
        "static": _kept(WRITTEN),
    }

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "off":
            whole = "logits = model(tokens, use_cache=False, logits_to_keep=1).logits[:, -1]"
            words = "# nothing is kept: each token is a whole pass over the text so far"
            return Snippet(cache=words, prefill=whole, decode=whole)
        if config.level("decoder") is not None:
            return Snippet()  # a decoder of its own has its own cache of fixed size
        return Snippet(
            imports=("from transformers import StaticCache",),
            cache="cache = StaticCache(config=model.config, max_cache_len=len(prompt) + args.tokens)",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        before = run.kv_cache
        run.kv_cache = cast(Literal["off", "static"], level)
        try:
            yield
        finally:
            run.kv_cache = before
