"""layer_norm: the norms before each half of a block, by torch's kernels or by this project's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

KERNELS = (r"^layer_norm_forward$", r"^layer_norm_backward$")
"""A norm alone, both ways. Source: kernels/layer_norm.py."""
SUMS = (r"^residual_norm_forward$", r"^residual_norm_backward$")
"""A norm with the residual sum before it; one with the gradient of the stream added. Source: the same."""


def _norms(level: str) -> Callable[[Profile], Evidence]:
    """Proof that every norm, two in a block and the last, was ``level``'s, both ways, and none another's."""

    def judge(profile: Profile) -> Evidence:
        blocks, passes = profile.blocks_passed, profile.steps
        forward, backward, sum_forward, sum_backward = (profile.count(pattern) for pattern in (*KERNELS, *SUMS))
        torchs = profile.operator_count("aten::native_layer_norm")
        all_norms = 2 * blocks + passes
        shown = {
            "torch": torchs >= all_norms and not forward + backward + sum_forward + sum_backward,
            "triton": min(forward, backward) >= all_norms and not torchs + sum_forward + sum_backward,
            # The second norm of a block is summed before; of the backward passes all are but the last norm's.
            "residual": forward >= blocks + passes
            and sum_forward >= blocks
            and backward >= passes
            and sum_backward >= 2 * blocks
            and not torchs,
        }[level]
        seen = f"torch's norm x{torchs}; Triton's x{forward} and back x{backward}"
        seen += f", with sums x{sum_forward} and back x{sum_backward}; {all_norms} were to be seen each way"
        return Evidence(shown=shown and blocks > 0, seen=seen)

    return judge


class LayerNormKernel(Optimization):
    name = "layer_norm"
    label = "Layer norm"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="torch", label="torch", help="Under autocast: the norm in float32, then a cast of its result."),
        Level(id="triton", label="Triton", help="This project's own kernels: written at once in the products' format."),
        Level(
            id="residual",
            label="Triton, with sums",
            help="In the same kernels the residual sum before a norm, and the gradients of the biases around it.",
        ),
    )
    help = (
        "A layer norm does little arithmetic and reads and writes the whole residual stream. Under autocast torch "
        "writes its result in float32, and the product after it has that read again and cast to 16 bits; the gradient "
        "makes the same detour back. The Triton kernel writes the product's format at once and takes the gradient in "
        "it, and its backward pass makes all three gradients while it reads the data once."
    )
    cost = (
        "Nothing in exactness: statistics and sums are float32, and the result is rounded to 16 bits once, as before. "
        "A compiled model fuses its norms with what is around them, the residual sum too: there this only stands in "
        "the way. Without autocast only the backward pass gains."
    )
    expect = "Some per cent of a step under autocast without torch.compile; with it nothing, or a loss."
    source = "Ba, Kiros and Hinton 2016, arXiv:1607.06450; kernels/layer_norm.py counts the bytes"
    code = """\
from explorer.kernels.layer_norm import layer_norm

y = layer_norm(x, norm.weight, norm.bias, norm.eps, torch.bfloat16)  # in place of norm(x).to(torch.bfloat16)
"""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "torch": _norms("torch"),
        "triton": _norms("triton"),
        "residual": _norms("residual"),
    }
    needs = (
        Needs(
            level="residual",
            other="dropout",
            allowed=("off",),
            reason="its kernels add a bias after the place of the dropout",
        ),
    )

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "torch":
            return None
        if device.kind != "cuda":
            return "Triton kernels need a CUDA device; this device is a CPU"
        return device.triton_problem

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "residual":
            return Snippet(
                imports=(
                    "from explorer.optimizations.residual_block import ResidualBlock",
                    "from explorer.optimizations.triton_layer_norm import TritonLayerNorm",
                    "from explorer.optimizations.unbiased import Unbiased",
                ),
                setup="""\
for block in model.transformer.h:
    block.attn.c_proj.__class__ = block.mlp.c_proj.__class__ = Unbiased
    block.__class__ = ResidualBlock
model.transformer.ln_f = TritonLayerNorm(model.transformer.ln_f)
""",
            )
        return Snippet(
            imports=("from explorer.kernels.layer_norm import layer_norm",),
            definitions='''\
class TritonLayerNorm(torch.nn.Module):
    """kernels/layer_norm.py of the explorer (pip install -e its folder); writes autocast's format at once."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        return layer_norm(x, self.weight, self.bias, self.eps, dtype)
''',
            setup="""\
for block in model.transformer.h:
    block.ln_1, block.ln_2 = TritonLayerNorm(block.ln_1), TritonLayerNorm(block.ln_2)
model.transformer.ln_f = TritonLayerNorm(model.transformer.ln_f)
""",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        from explorer.optimizations.triton_layer_norm import TritonLayerNorm

        model: Any = run.model.transformer
        before = [(block, name, getattr(block, name)) for block in model.h for name in ("ln_1", "ln_2")]
        before.append((model, "ln_f", model.ln_f))
        if level == "residual":
            before = before[-1:]
        made = [TritonLayerNorm(norm) for _, _, norm in before]
        for (owner, name, _), module in zip(before, made, strict=True):
            setattr(owner, name, module)
        try:
            with _in_blocks(model.h) if level == "residual" else nullcontext():
                yield
        finally:
            for owner, name, norm in before:
                setattr(owner, name, norm)


@contextmanager
def _in_blocks(blocks: Any) -> Iterator[None]:
    from explorer.optimizations.residual_block import ResidualBlock
    from explorer.optimizations.unbiased import Unbiased, of_class

    ends = [half.c_proj for block in blocks for half in (block.attn, block.mlp)]
    with of_class(ends, Unbiased), of_class(list(blocks), ResidualBlock):
        yield
