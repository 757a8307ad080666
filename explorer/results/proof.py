"""What a short profile of one step showed, and whether a toggle left its mark in it: plain data."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from explorer.config import Workload

LISTED = 3
"""Kernels that a piece of evidence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All executions of one device kernel, or on the CPU of one operator."""

    name: str
    count: int
    total_us: float
    """On the CPU the operator's own time, without that of the operators it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often an operator ran on one number format."""

    op: str
    """Without its namespace: addmm, bmm, _softmax."""
    dtype: str
    """float32, float16, bfloat16, …; where the two matrices differ, both with an x between."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    """Copies of one size from one kind of the host's memory to the device."""

    source: Literal["pageable", "pinned"]
    bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One training step, or one prefill and some decoded tokens, as the profiler recorded it after warm-up."""

    device: Literal["cuda", "cpu"]
    workload: Workload
    steps: int
    """Forward passes of the model: one for each part of a batch in training; the prefill and the tokens after it in
    generation."""
    step_ms: float
    """Time that the same work took without the profiler, which slows the host."""
    kernels: tuple[Kernel, ...]
    """The longest total first."""
    operators: tuple[tuple[str, int], ...]
    """Names and counts of torch's operators, nested ones included, the most frequent first."""
    products: tuple[Tally, ...]
    """Matrix products, by operator and by the format of what they really multiplied."""
    widest_product: int = 0
    """Columns of the widest of them: the head's, one for each token of the vocabulary."""
    vocabulary: int = 0
    """Tokens that the model knows."""
    attention_softmax: tuple[Tally, ...]
    """Softmaxes over (B, H, T, S), which only attention that is written out has, by the format they computed in."""
    norms: tuple[Tally, ...] = ()
    """Layer norms, by the format of their weights: autocast leaves those as they are."""
    residual_adds: tuple[Tally, ...] = ()
    """Sums of two tensors of the residual stream's shape, by the format of the result."""
    attention_dropout: float = 0.0
    """Largest probability that scaled_dot_product_attention was called with."""
    attention_masks: int = 0
    """Calls of a fused attention operator that were given a mask."""
    block_forwards: tuple[int, ...]
    """How often each transformer block's forward came to the end of its attention."""
    triton_kernels: tuple[str, ...] = ()
    """Those of this project's own Triton kernels that ran."""
    tf32_allowed: bool = False
    """Whether float32 products were allowed to round their inputs to TF32."""
    launches: int | None = None
    """Calls by which the host launched kernels or graphs of them; None on the CPU."""
    busy_ms: float = math.nan
    """Time in which at least one kernel or copy was running on the GPU; NaN on the CPU."""

    uploads: tuple[Uploads, ...] = ()
    """What was copied to the GPU."""
    batch_bytes: int = 0
    """Of one training batch's token ids."""
    device_reads: int = 0
    """Numbers that the host read from the GPU, each after waiting for it."""

    as_written: Profile | None = None
    """Where the model was compiled: the same step without, in which every operator is called by its name."""

    @property
    def busy_share(self) -> float:
        """busy_ms / step_ms, at most 1; NaN on the CPU. Tracing lengthens kernels by a little, so it errs upwards."""
        if self.launches is None or self.step_ms <= 0:
            return math.nan
        return min(1.0, self.busy_ms / self.step_ms)

    @property
    def recomputed_blocks(self) -> tuple[int, ...]:
        """Indices of the blocks whose forward ran again after the forward pass."""
        return tuple(index for index, count in enumerate(self.block_forwards) if count > self.steps)

    @property
    def blocks_passed(self) -> int:
        """Forward passes of blocks: how often a block's own work must be seen at least. Those that were done again in a
        backward pass count once, and those that kernels of whole decoding steps did, not at all."""
        return sum(min(count, self.steps) for count in self.block_forwards)

    def matching(self, pattern: str) -> tuple[Kernel, ...]:
        """Kernels (on the CPU operators) in whose name the regular expression ``pattern`` is found."""
        wanted = re.compile(pattern)
        return tuple(kernel for kernel in self.kernels if wanted.search(kernel.name))

    def count(self, pattern: str) -> int:
        """Executions of the kernels that ``matching`` gives."""
        return sum(kernel.count for kernel in self.matching(pattern))

    def batch_uploads(self, source: Literal["pageable", "pinned"]) -> int:
        """Copies of as many bytes as a batch has, from this kind of memory."""
        return sum(u.count for u in self.uploads if u.source == source and u.bytes == self.batch_bytes)

    def operator_count(self, *names: str) -> int:
        """Calls of the operators with exactly these names."""
        return sum(count for name, count in self.operators if name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a profile says of one level of one toggle."""

    shown: bool
    """Whether it proves that the level ran."""
    seen: str
    """In words, with the names and counts that it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A toggle's level and whether the profile of a run shows it."""

    level: str
    shown: bool
    evidence: str


def short_name(kernel: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters: fit for one line.

    Generic kernels are named by what they were made for: torch's element-wise ones by their operation, CUTLASS's
    Kernel by its argument.
    """
    made_for = re.search(r"\w+(?:CUDAKernelImpl|_kernel_cuda|_kernel_impl)\b|(?<=Kernel2<)cutlass_\w+", kernel)
    if made_for:
        return made_for.group(0)
    if kernel.startswith("aten::"):
        return kernel
    plain = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    name = re.split(r"[<(]", plain, maxsplit=1)[0].rsplit("::", 1)[-1].strip()
    functor = re.search(r"\w*Functor\w*", plain)
    return f"{name}[{functor.group(0)}]" if functor else name or kernel


def listed(kernels: Sequence[Kernel]) -> str:
    """``kernels`` in a few words: names and counts, the longest-running first; none where there are none."""
    counts: Counter[str] = Counter()
    for kernel in sorted(kernels, key=lambda k: -k.total_us):
        counts[short_name(kernel.name)] += kernel.count
    told = [f"{name} x{count}" for name, count in list(counts.items())[:LISTED]]
    more = len(counts) - len(told)
    return ", ".join(told + ([f"{more} more"] if more else [])) or "none"
