"""decoder: whose code computes a token from the model's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
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


LINEARS = 4
"""Products with weights in a block: attention's two and the feed-forward's two."""


def _ran(level: str) -> Callable[[Profile], Evidence]:
    """Proof of whose code decoded: by how it takes queries, keys and values apart, or by the kernels of this project,
    which must have done every block of every token after the prefill."""

    def judge(profile: Profile) -> Evidence:
        apart, own = profile.operator_count(SPLIT), profile.count(r"^decode_linear$")
        decoded = len(profile.block_forwards) * (profile.steps - 1)
        match level:
            case "hf":
                shown = apart == own == 0 < profile.blocks_passed
            case "torch":
                shown = own == 0 < profile.blocks_passed <= apart
            case _:
                shown = own >= LINEARS * decoded > 0 and profile.count(r"^decode_attention$") >= decoded
        return Evidence(shown=shown, seen=f"{SPLIT} x{apart}, decode_linear x{own}, {decoded} blocks decoded")

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
        Level(id="triton", label="Triton", help="This project's own kernels: five a layer, seven at several rows."),
    )
    help = (
        "At one row a token is a few hundred small kernels, each over in microseconds: what lies between them decides. "
        "The plain decoder makes mask, positions and slot once a token instead of once a layer, writes keys and values "
        "in place, and lets attention look at the slots up to the next power of two only. The Triton decoder fuses "
        "norms, biases, GeLU, residuals and the write into the cache into the products: 62 kernels a token instead of "
        "some 200 (GPT-2 124M), which read each weight once, also in int8. Several rows are normed once, by kernels of "
        "their own: 87. From Hopper on a kernel begins, and fetches its weights, before the one ahead has ended."
    )
    cost = (
        "Written for GPT-2 alone. Exact up to rounding. Little is gained while Python launches each kernel: "
        "decode_graph goes with it. Triton compiles when a segment begins, and has its weights transposed in memory."
    )
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
        *(
            Needs(level=level, other=other, allowed=allowed, reason=reason)
            for level in ("torch", "triton")
            for other, allowed, reason in (
                ("kv_cache", ("static",), "it writes into a cache of fixed size"),
                ("attention", ("math", "efficient", "sdpa"), "it attends by scaled_dot_product_attention with a mask"),
            )
        ),
        Needs(
            level="torch",
            other="precision",
            allowed=("tf32", "fp32"),
            reason="it keeps keys and values in the weights' own format, which autocast does not",
        ),
        Needs(level="triton", other="precision", allowed=("fp32",), reason="its kernels choose their own formats"),
        Needs(level="triton", other="gelu", allowed=("triton", "torch"), reason="its kernels have the GeLU fused"),
    )
    # The kernels' statistics and sums are float32's; three-layer model on the CPU (interpreted): 4e-7.
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        level: _ran(level) for level in ("hf", "torch", "triton")
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level != "triton":
            return None
        if device.kind != "cuda":
            return "Triton kernels need a CUDA device; this device is a CPU"
        return device.triton_problem

    def snippet(self, level: str, config: RunConfig) -> Snippet | None:
        if level == "triton":
            return None
        return Snippet(
            imports=("import torch.nn.functional as F",),
            definitions=DECODER,
            cache="decoder = Decoder(model, BATCH, len(prompt) + args.tokens)",
            prefill="logits = decoder(tokens, 0)",
            decode="logits = decoder(token, tokens.shape[1] - 1)",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        with ExitStack() as stack:
            if level == "triton":
                from explorer.optimizations.triton_decoder import TritonDecoder, transposed

                stack.enter_context(transposed(run))
                run.decoder = TritonDecoder
            else:
                from explorer.optimizations.torch_decoder import TorchDecoder

                run.decoder = TorchDecoder
            try:
                yield
            finally:
                run.decoder = None
