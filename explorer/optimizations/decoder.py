"""decoder: whose code computes a token from the model's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.proof import Evidence, Profile

SPLIT = "aten::chunk"
"""Operator by which torch_decoder.py takes queries, keys and values apart; transformers' GPT-2 has none."""

DECODER = '''\
class Decoder:
    """GPT-2's forward pass over the model's own modules, with keys and values in tensors of fixed size.

    B rows, n tokens, H heads, D numbers a head.
    """

    def __init__(self, model, batch, slots):
        shape = model.config
        self.model, self.heads = model, shape.n_head
        self.slots = min(-(-slots // 8) * 8, shape.n_positions)
        size = (batch, shape.n_head, self.slots, shape.n_embd // shape.n_head)
        empty = torch.zeros(size, dtype=model.transformer.ln_f.weight.dtype, device=model.device)
        self.caches = [(empty.clone(), empty.clone()) for _ in range(shape.n_layer)]

    def __call__(self, tokens, first):
        """Logits (B, V) after ``tokens`` (B, n), which go into the slots from ``first`` on."""
        slots = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        # What was written so far, up to the next power of two.
        reach = min(self.slots, max(256, 1 << int(first + tokens.shape[1] - 1).bit_length()))
        mask = torch.arange(reach, device=tokens.device) <= slots[:, None] if first else None
        x = self.model.transformer.wte(tokens) + self.model.transformer.wpe(slots[None])
        for block, (keys, values) in zip(self.model.transformer.h, self.caches):
            q, k, v = (self.by_head(part) for part in block.attn.c_attn(block.ln_1(x)).chunk(3, dim=2))
            keys.index_copy_(2, slots, k)
            values.index_copy_(2, slots, v)
            if first:
                k, v = keys[:, :, :reach], values[:, :, :reach]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not first and len(slots) > 1)
            x = x + block.attn.c_proj(y.transpose(1, 2).flatten(2))
            x = x + block.mlp.c_proj(block.mlp.act(block.mlp.c_fc(block.ln_2(x))))
        return self.model.lm_head(self.model.transformer.ln_f(x[:, -1]))

    def by_head(self, x):
        """(B, n, H D) to (B, H, n, D)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)
'''
"""For exported scripts; ``torch_decoder.py`` is the one that runs here."""


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

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(
            imports=("import torch.nn.functional as F",),
            definitions=DECODER,
            cache="decoder = Decoder(model, BATCH, len(prompt) + args.tokens)",
            prefill="logits = decoder(tokens, 0)",
            decode="logits = decoder(token, tokens.shape[1] - 1)",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.torch_decoder import TorchDecoder

        before = run.decoder
        run.decoder = TorchDecoder
        try:
            yield
        finally:
            run.decoder = before
