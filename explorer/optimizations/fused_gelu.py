"""gelu: the activation between a block's two feed-forward products, as one kernel or as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile, listed

if TYPE_CHECKING:
    from torch import nn

TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
"""transformers' names for the tanh approximation, which is what the fused kernels compute."""

# Kernels (on the CPU operators) of each level's forward and backward pass. Source: torch's ActivationGeluKernel.cu,
# UnaryGeometricTanhKernel.cu and PowKernel.cu; kernels/gelu.py.
FORWARD = {
    "hf": r"tanh_kernel|^aten::tanh$",
    "torch": r"GeluCUDAKernel|^aten::gelu$",
    "triton": r"^gelu_forward$",
    "triton_bias": r"^bias_gelu_forward$",
}
BACKWARD = {
    "hf": r"tanh_backward_kernel|^aten::tanh_backward$",
    "torch": r"GeluBackwardCUDAKernel|^aten::gelu_backward$",
    "triton": r"^gelu_backward$",
    "triton_bias": r"^bias_gelu_backward$",
}


def _runs(level: str) -> Callable[[Profile], Evidence]:
    """Proof that every block's GeLU was ``level``'s, both ways in training, and no other's."""

    def judge(profile: Profile) -> Evidence:
        passes = [FORWARD, BACKWARD] if profile.workload == "train" else [FORWARD]
        own = [profile.matching(kernels[level]) for kernels in passes]
        others = [
            k for kernels in passes for other in kernels if other != level for k in profile.matching(kernels[other])
        ]
        enough = all(sum(kernel.count for kernel in found) >= profile.blocks_passed for found in own)
        seen = listed([kernel for found in own for kernel in found])
        if not enough:
            seen += f"; {profile.blocks_passed} were to be seen each way"
        if others:
            seen += f"; of another level: {listed(others)}"
        return Evidence(shown=enough and not others and profile.blocks_passed > 0, seen=seen)

    return judge


class FusedGelu(Optimization):
    name = "gelu"
    label = "GeLU"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train", "generate")
    levels = (
        Level(id="hf", label="unfused", help="transformers' gelu_new: about six kernels forward, each through memory."),
        Level(id="torch", label="torch fused", help="F.gelu(approximate='tanh'): one kernel each way."),
        Level(id="triton", label="Triton fused", help="This project's own Triton kernel: one kernel each way."),
        Level(
            id="triton_bias",
            label="Triton, with bias",
            help="The same, with the bias added in it forward and its gradient summed in it backward.",
            workloads=("train",),
        ),
    )
    help = (
        "GPT-2's GeLU written in plain Python runs as a power, a tanh, sums and products, and each reads and "
        "writes the whole tensor. A fused kernel reads it once, computes in registers and writes once; its "
        "backward needs only the input. The formula is the same, the tanh approximation."
    )
    cost = (
        "Nothing in exactness beyond rounding. Triton compiles its kernel at the first step. On tensors so small "
        "that launching a kernel takes longer than running it, only the number of launches counts."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024, bf16 with SDPA: from 63.2 ms a step and 12.4 GiB to 54.0 ms and "
        "8.9 GiB together with dropout off. The kernel alone, bf16, 65536 x 3072: unfused 472 GB/s, fused 3591 "
        "GB/s of 4250 that a copy reaches."
    )
    source = "Hendrycks and Gimpel 2016, arXiv:1606.08415; Tillet et al. 2019, doi:10.1145/3315508.3329973 (Triton)"
    code = """\
for block in model.transformer.h:
    block.mlp.act = torch.nn.GELU(approximate="tanh")  # or a module around kernels/gelu.py's gelu(x)
"""

    # Unfused, autograd keeps the cube's input (in float32: autocast lists pow there), half the input, tanh, one more
    # than tanh, and what goes into the next product. Fused, input and output.
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "hf": MemoryTerms(gelu=lambda formats: 3 * 4 + 2 * formats.product_bytes),
        "torch": MemoryTerms(gelu=lambda formats: 2 * formats.product_bytes),
        "triton": MemoryTerms(gelu=lambda formats: 2 * formats.product_bytes),
        "triton_bias": MemoryTerms(gelu=lambda formats: 2 * formats.product_bytes),
    }

    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {level: _runs(level) for level in FORWARD}

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level not in ("triton", "triton_bias"):
            return None
        if device.kind != "cuda":
            return "Triton kernels need a CUDA device; this device is a CPU"
        return device.triton_problem

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "torch":
            made = 'torch.nn.GELU(approximate="tanh")'
            return Snippet(setup=f"for block in model.transformer.h:\n    block.mlp.act = {made}\n")
        if level == "triton_bias":
            return Snippet(
                imports=(
                    "from explorer.optimizations.triton_gelu import BiasGeluMlp",
                    "from explorer.optimizations.unbiased import Unbiased",
                ),
                setup="""\
for block in model.transformer.h:
    block.mlp.c_fc.__class__ = Unbiased
    block.mlp.__class__ = BiasGeluMlp
""",
            )
        return Snippet(
            imports=("from explorer.kernels.gelu import gelu",),
            definitions='''\
class TritonGelu(torch.nn.Module):
    """GPT-2's tanh GeLU in one kernel each way: kernels/gelu.py of the explorer (pip install -e its folder)."""

    def forward(self, x):
        return gelu(x)
''',
            setup="for block in model.transformer.h:\n    block.mlp.act = TritonGelu()\n",
        )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        """Raises:
        ValueError: the model's activation is not the tanh GeLU.
        """
        activation = run.model.config.activation_function
        if activation not in TANH_GELUS:
            raise ValueError(
                f"gelu = {level} replaces the tanh GeLU, but this model's activation_function is {activation!r}; "
                f"allowed: {', '.join(TANH_GELUS)}"
            )
        blocks: Any = run.model.transformer.h
        mlps = [block.mlp for block in blocks]
        if level == "triton_bias":
            from explorer.optimizations.triton_gelu import BiasGeluMlp
            from explorer.optimizations.unbiased import Unbiased, of_class

            with of_class([mlp.c_fc for mlp in mlps], Unbiased), of_class(mlps, BiasGeluMlp):
                yield
            return
        before = [mlp.act for mlp in mlps]
        for mlp in mlps:
            mlp.act = _module(level)
        try:
            yield
        finally:
            for mlp, act in zip(mlps, before, strict=True):
                mlp.act = act


def _module(level: str) -> nn.Module:
    from torch import nn

    if level == "torch":
        return nn.GELU(approximate="tanh")
    from explorer.optimizations.triton_gelu import TritonGelu

    return TritonGelu()
