"""weight_dtype: the number format that generation keeps the weights in, and with it what it computes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.precision import AMPERE, having
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

if TYPE_CHECKING:
    import torch
    from torch import nn

INT8 = '''\
class Int8Linear(torch.nn.Module):
    """x W^T s + b, with W (outputs, inputs) in int8 and a scale an output, computed in bfloat16."""

    def __init__(self, weight, bias):
        super().__init__()
        tiny = torch.finfo(torch.bfloat16).tiny
        scale = weight.detach().abs().amax(dim=1).div(127).clamp(min=tiny).to(torch.bfloat16)
        rounded = (weight.detach() / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().to(torch.bfloat16))

    def forward(self, x):
        y = F.linear(x, self.weight.to(x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias


class Int8Embedding(torch.nn.Module):
    """The rows of the head's own weights, as GPT-2 ties them."""

    def __init__(self, head):
        super().__init__()
        self.register_buffer("weight", head.weight)
        self.register_buffer("scale", head.scale)

    def forward(self, tokens):
        return self.weight[tokens].to(self.scale.dtype) * self.scale[tokens].unsqueeze(-1)
'''
"""For exported scripts; the modules of ``int8.py`` are those that run here."""


def _holds(dtype: str) -> Callable[[Profile], Evidence]:
    """Proof that all weights are of ``dtype``, or with int8 all but those that are multiplied, which are cast."""
    computed = "bfloat16" if dtype == "int8" else dtype

    def judge(profile: Profile) -> Evidence:
        weights = [tally for tally in profile.products if tally.op in ("mm", "addmm")]
        # Autocast multiplies in another format than that of the weights.
        products = dtype == "float32" or all(tally.dtype == computed for tally in weights)
        norms = all(tally.dtype == computed for tally in profile.norms)
        # Positions and tokens are looked up as they stand, but tokens in int8 are not.
        tables = profile.operator_count("aten::embedding") / max(max(profile.block_forwards, default=1), 1)
        shown = bool(weights and profile.norms) and products and norms and (tables < 2) == (dtype == "int8")
        seen = "; ".join(
            f"{words}: " + (", ".join(f"{t.op} {t.dtype} x{t.count}" for t in tallies) or "none")
            for words, tallies in (("matrix products", weights), ("layer norms", profile.norms))
        )
        return Evidence(shown=shown, seen=f"{seen}; embeddings looked up as they stand: {tables:g} a pass")

    return judge


class WeightDtype(Optimization):
    name = "weight_dtype"
    label = "Weights"
    tier = "framework"
    stage = Stage.MODULES
    workloads = ("generate",)
    levels = (
        Level(id="fp32", label="float32", help="As loaded: 4 bytes a weight."),
        Level(id="fp16", label="float16", help="2 bytes a weight; everything is computed in float16."),
        Level(id="bf16", label="bfloat16", help="2 bytes a weight; float32's range, coarser."),
        Level(
            id="int8", label="int8, weights only", help="1 byte a weight and a scale an output; computed in bfloat16."
        ),
    )
    help = (
        "A token at a small batch reads every weight once and does little with it: it takes as long as reading "
        "takes. Weights in half the bytes are read in half the time. int8 halves them once more: each output's weights "
        "are rounded to 255 steps of its own size, and cast back where they are used."
    )
    cost = (
        "Rounding: the text may part from float32's at the first token whose choice was close; parity gives the "
        "change of perplexity on held-out text. Attention that is written out (naive) rounds its scores, too, which "
        "can cost far more: sdpa keeps them in float32. int8 saves memory, but not reading: in plain torch each token"
        " writes and reads the 16-bit weights besides. A CPU without units for a format emulates it, slower than "
        "float32."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 1: all weights are 498 MB in float32 and 249 in 16 bits, which its memory "
        "delivers in 0.10 and 0.05 ms a token."
    )
    source = "Dettmers et al. 2022, arXiv:2208.07339; pytorch.org/blog/accelerating-generative-ai-2 (gpt-fast)"
    code = """\
model.eval().to(torch.bfloat16)

# int8, weights only; weight: (outputs, inputs)
scale = weight.abs().amax(dim=1, keepdim=True) / 127
weight = (weight / scale).round().to(torch.int8)
y = torch.nn.functional.linear(x, weight.to(x.dtype)) * scale[:, 0] + bias
"""
    needs = tuple(
        Needs(
            level=level,
            other="precision",
            allowed=("tf32", "fp32"),
            reason="autocast is for float32 weights; these are in 16 bits already",
        )
        for level in ("fp16", "bf16", "int8")
    )
    # Largest seen on a three-layer model's logits on the CPU: fp16 9e-4, bf16 8e-3, int8 9e-3.
    tolerance: ClassVar[Mapping[str, float]] = {"fp16": 5e-3, "bf16": 3e-2, "int8": 3e-2}

    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "fp32": _holds("float32"),
        "fp16": _holds("float16"),
        "bf16": _holds("bfloat16"),
        "int8": _holds("int8"),
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level not in ("bf16", "int8") or device.kind != "cuda" or device.bf16:
            return None
        return f"bfloat16, which it computes in, needs compute capability {AMPERE[0]}.{AMPERE[1]}; {having(device)}"

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level != "int8":
            return Snippet(setup=f"model.to({ {'fp16': 'torch.float16', 'bf16': 'torch.bfloat16'}[level] })")
        return Snippet(
            imports=("import torch.nn.functional as F",),
            definitions=INT8,
            setup="""\
head = Int8Linear(model.lm_head.weight, None)
for block in model.transformer.h:
    for owner, name in ((block.attn, "c_attn"), (block.attn, "c_proj"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
        conv1d = getattr(owner, name)  # transformers keeps GPT-2's weights as (inputs, outputs)
        setattr(owner, name, Int8Linear(conv1d.weight.T, conv1d.bias))
model.lm_head, model.transformer.wte = head, Int8Embedding(head)
model.to(torch.bfloat16)  # leaves int8 as it is
""",
        )

    def applied(self, run: Run, level: str) -> AbstractContextManager[None]:
        import torch

        if level == "int8":
            return _int8(run, torch.bfloat16)
        return _cast(run, {"fp16": torch.float16, "bf16": torch.bfloat16}[level])


@contextmanager
def _cast(run: Run, dtype: torch.dtype) -> Iterator[None]:
    # The float32 values wait in host memory, so that the device holds what a half-precision model really takes.
    # On the CPU that is where they are: the very tensors are kept.
    kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    try:
        for parameter in run.model.parameters():
            kept.append((parameter, parameter.data.cpu()))
            parameter.data = parameter.data.to(dtype)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data.to(run.device)


@contextmanager
def _int8(run: Run, dtype: torch.dtype) -> Iterator[None]:
    from explorer.optimizations.int8 import Int8Embedding, Int8Linear

    model: Any = run.model
    before: list[tuple[nn.Module, str, nn.Module]] = []

    def swap(owner: nn.Module, name: str, module: nn.Module) -> None:
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, module)

    head = Int8Linear(model.lm_head.weight, None, dtype)
    linears = [
        (owner, name, Int8Linear(getattr(owner, name).weight.T, getattr(owner, name).bias, dtype))
        for block in model.transformer.h
        for owner, name in ((block.attn, "c_attn"), (block.attn, "c_proj"), (block.mlp, "c_fc"), (block.mlp, "c_proj"))
    ]
    with _cast(run, dtype):
        try:
            swap(model, "lm_head", head)
            swap(model.transformer, "wte", Int8Embedding(head))
            for owner, name, linear in linears:
                swap(owner, name, linear)
            for _, _, module in before:  # off the device, too; leaving the cast gives them their values back
                for parameter in module.parameters():
                    parameter.data = parameter.data.new_empty(0)
            yield
        finally:
            for owner, name, module in reversed(before):
                setattr(owner, name, module)
