"""decoder: whose code computes a token from the model's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.results.proof import Evidence, Profile

SPLIT = "aten::chunk"
"""Operator by which torch_decoder.py takes queries, keys and values apart; transformers' GPT-2 has none."""


def _splits(wanted: bool) -> Callable[[Profile], Evidence]:
    def judge(profile: Profile) -> Evidence:
        count = profile.operator_count(SPLIT)
        shown = profile.blocks_passed > 0 and (count >= profile.blocks_passed if wanted else count == 0)
        return Evidence(shown=shown, seen=f"{SPLIT} x{count} in {profile.blocks_passed} passes of a block")

    return judge


class DecoderCode(Optimization):
    name = "decoder"
    label = "Decoder"
    tier = "system"
    stage = Stage.COMPILE
    workloads = ("generate",)
    levels = (
        Level(id="hf", label="transformers", help="GPT2Model.forward, at each token."),
        Level(id="torch", label="plain torch", help="The same arithmetic in some 40 lines; attends to the room used."),
    )
    help = (
        "At one row a token is a few hundred small kernels, each over in microseconds: what lies between them decides. "
        "The plain decoder makes mask, positions and slot once a token instead of once a layer, writes keys and values "
        "in place, and lets attention look at the slots up to the next power of two only."
    )
    cost = "It is written for GPT-2 alone. Exact up to rounding. Little is gained while Python launches each kernel."
    expect = (
        "On an H200, GPT-2 124M, B = 1: its token's weights can be read in 0.05 ms in 16 bits; transformers' forward "
        "takes some 10 ms, nearly all of it on the host."
    )
    source = "github.com/meta-pytorch/gpt-fast, model.py; pytorch.org/blog/accelerating-generative-ai-2"
    code = """\
def forward(model, tokens, positions, slots, mask, caches):
    x = model.transformer.wte(tokens) + model.transformer.wpe(positions)
    for block, (keys, values) in zip(model.transformer.h, caches):
        q, k, v = (by_head(p) for p in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=2))  # (B, H, n, D)
        keys.index_copy_(2, slots, k)
        values.index_copy_(2, slots, v)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + block.attn.c_proj(y.transpose(1, 2).flatten(2))
        x = x + block.mlp.c_proj(block.mlp.act(block.mlp.c_fc(block.ln_2(x))))
    return model.lm_head(model.transformer.ln_f(x[:, -1]))
"""
    needs = (
        Needs(level="torch", other="kv_cache", allowed=("static",), reason="it writes into a cache of fixed size"),
        Needs(
            level="torch",
            other="attention",
            allowed=("math", "efficient", "sdpa"),
            reason="it attends by scaled_dot_product_attention with a mask",
        ),
        Needs(
            level="torch",
            other="precision",
            allowed=("tf32", "fp32"),
            reason="it keeps keys and values in the weights' own format, which autocast does not",
        ),
    )
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {"hf": _splits(False), "torch": _splits(True)}

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.torch_decoder import TorchDecoder

        before = run.decoder
        run.decoder = TorchDecoder
        try:
            yield
        finally:
            run.decoder = before
