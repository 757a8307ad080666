"""linear: the number format in which the blocks' four projections are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.proof import Evidence, Profile

OPERATOR = "aten::_scaled_mm"
LEAST_CAPABILITY = (8, 9)
"""Ada: the first with float8 tensor cores."""


def _multiplies(float8: bool) -> Callable[[Profile], Evidence]:
    """Proof that all four products of each block, and those that give their inputs' gradients, were float8's."""

    def judge(profile: Profile) -> Evidence:
        found, wanted = profile.operator_count(OPERATOR), 8 * profile.blocks_passed
        shown = found >= wanted > 0 if float8 else found == 0
        return Evidence(shown=shown, seen=f"{found} float8 products, of {wanted}")

    return judge


class LinearFormat(Optimization):
    name = "linear"
    label = "Linear layers"
    tier = "hardware"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="autocast", label="as precision says", help="In the format of the precision toggle."),
        Level(id="fp8", label="float8", help="Each row and column scaled to its largest number, then in e4m3."),
    )
    help = (
        "Cards from Ada and Hopper on multiply float8 numbers twice as fast as 16-bit ones. Such a number has 3 bits "
        "after its first, so each row of the input and each column of the weights is scaled to use all of the format's "
        "range. Forward products and those that give the inputs' gradients are float8; the weights' own gradients, the "
        "head and attention stay in 16 bits."
    )
    cost = (
        "Each number is rounded to one part in 16: parity says what that does to the gradients at your shapes. Finding "
        "the largest number of each row and writing the float8 copy is a pass over the input, which eats the gain of "
        "small layers; without torch.compile it is several."
    )
    expect = "Compiled, some per cent of a step with wide layers and many tokens; otherwise a loss. Parity decides."
    source = "Micikevicius et al. 2022, arXiv:2209.05433; docs.pytorch.org: torch.nn.functional.scaled_mm"
    code = """\
def to_float8(x):  # rows of x
    largest = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * (448 / largest)).to(torch.float8_e4m3fn), largest / 448

x8, x_scale = to_float8(x)
w8, w_scale = to_float8(weight)  # (outputs, inputs)
y = torch._scaled_mm(x8, w8.t(), scale_a=x_scale, scale_b=w_scale.t(), out_dtype=torch.bfloat16)
"""
    needs = (
        Needs(
            level="fp8",
            other="precision",
            allowed=("bf16",),
            reason="scaled float8 products come out in bfloat16",
            kinds=("cuda",),
        ),
    )
    # Seen on a three-layer model's gradients on the CPU: 1.2e-1, of its loss 5e-3; bf16 alone gives 1.1e-2 and 1e-4.
    tolerance: ClassVar[Mapping[str, float]] = {"fp8": 2.5e-1}
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "autocast": _multiplies(False),
        "fp8": _multiplies(True),
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "autocast":
            return None
        if device.kind != "cuda":
            return "float8 products need a CUDA device; on a CPU they gain nothing"
        if device.capability is None or device.capability < LEAST_CAPABILITY:
            has = "unknown" if device.capability is None else ".".join(map(str, device.capability))
            return f"float8 products need compute capability 8.9 or newer; this device has {has}"
        return None

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        return Snippet(
            imports=("from explorer.optimizations.float8 import Projection, product",),
            setup="""\
for block in model.transformer.h:
    for layer in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj):
        layer.product = product
        if type(layer).__name__ == "Conv1D":
            layer.__class__ = Projection
""",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        """Raises:
        ValueError: a projection's width is none that the device multiplies in float8.
        """
        from explorer.optimizations.float8 import multiplied_by, product

        blocks: Any = run.model.transformer.h
        halves = [(block.attn, block.mlp) for block in blocks]
        layers = [layer for attn, mlp in halves for layer in (attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj)]
        for inputs, outputs in {tuple(layer.weight.shape) for layer in layers} if run.device.type == "cuda" else ():
            if inputs % 16 or outputs % 16:
                raise ValueError(
                    f"linear = {level} takes 16 numbers at a time on a GPU, but this model has a projection of "
                    f"{inputs} inputs and {outputs} outputs; allowed: multiples of 16"
                )
        with multiplied_by(layers, product):
            yield
