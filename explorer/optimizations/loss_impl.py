"""loss_impl: whether the logits of a whole batch exist, and in float32, or those of some rows at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import PLAIN_LOGITS_BYTES, MemoryTerms
from explorer.results.proof import Evidence, Profile

KERNEL = r"^cross_entropy$"
"""The Triton kernel. Source: kernels/linear_cross_entropy.py."""
CHUNK_BYTES = 9 << 27
"""Most that the Triton level's logits take. Source: kernels/linear_cross_entropy.py."""
CALLED = {"chunked": "chunked_cross_entropy", "fused": "linear_cross_entropy"}
"""The function that head and loss become, by level."""
IMPORTED = {
    "chunked": (
        "from typing import Any",
        "import torch.nn.functional as F",
        "from torch import Tensor",
        "from torch.autograd.function import once_differentiable",
    ),
    "fused": (
        "import torch.nn.functional as F",
        "from explorer.kernels.linear_cross_entropy import linear_cross_entropy",
    ),
}
"""For exported scripts."""


def _computes(level: str) -> Callable[[Profile], Evidence]:
    """Proof that the loss was ``level``'s: only transformers' calls nll_loss, and only the kernel does without
    log_softmax."""

    def judge(profile: Profile) -> Evidence:
        kernels = profile.count(KERNEL)
        whole = profile.operator_count("aten::nll_loss_forward")
        softmaxes = profile.operator_count("aten::_log_softmax")
        ran = {"hf": whole > 0, "chunked": softmaxes > whole, "fused": kernels > 0}
        return Evidence(
            shown=ran == {**dict.fromkeys(ran, False), level: True},
            seen=f"{softmaxes} log_softmax and {whole} nll_loss over logits, {kernels} of the Triton kernel",
        )

    return judge


class LossImpl(Optimization):
    name = "loss_impl"
    label = "Head and loss"
    tier = "system"
    stage = Stage.MODULES
    workloads = ("train",)
    levels = (
        Level(id="hf", label="transformers", help="All logits, B x T x 50257, and a copy of them in float32."),
        Level(
            id="chunked", label="in chunks", help="Plain torch: some rows' logits at a time, gradients made at once."
        ),
        Level(id="fused", label="Triton, in chunks", help="The same; one Triton kernel turns logits into gradients."),
    )
    help = (
        "GPT-2's logits are its largest tensor: 50257 numbers a token. transformers keeps them, copies them to float32 "
        "and makes the gradients of both. But the gradient of cross entropy needs only the logits themselves. So a "
        "chunk of rows at a time is multiplied with the head's matrix, its loss is taken, and its gradients go into "
        "those of the hidden state and of the matrix right away: then the chunk's memory serves the next."
    )
    cost = (
        "The model's output holds no logits in training; who asks for them there gets an error. Sums come in another "
        "order. Plain torch still makes each chunk's logits in float32, the Triton kernel does not; compiled, neither "
        "does."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 64, T = 1024, bf16, nanoGPT's model compiled: in chunks 127.8 instead of 125.2 ms "
        "a step, with 23.2 instead of 40.7 GiB."
    )
    source = "Hsu et al. 2024, arXiv:2410.10989 (Liger-Kernel), section 3.2"
    code = """\
from explorer.kernels.linear_cross_entropy import linear_cross_entropy

hidden = model.transformer(input_ids=tokens, use_cache=False).last_hidden_state
targets = torch.nn.functional.pad(tokens, (0, 1), value=-100)[:, 1:]
loss = linear_cross_entropy(hidden, model.lm_head.weight, targets)
"""
    # In plain torch a quarter of the rows at a time, or fewer: float32 and one or two copies in the products' format.
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        "hf": MemoryTerms(logits=lambda formats: PLAIN_LOGITS_BYTES),
        "chunked": MemoryTerms(logits=lambda formats: (4 + 4) / 4),
        "fused": MemoryTerms(logits=lambda formats: formats.product_bytes, logits_most_bytes=CHUNK_BYTES),
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        level: _computes(level) for level in ("hf", "chunked", "fused")
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level != "fused":
            return None
        if device.kind != "cuda":
            return "Triton kernels need a CUDA device; this device is a CPU"
        return device.triton_problem

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        call = f"{CALLED[level]}(hidden, head.weight, targets, classes=vocab_size)"
        return Snippet(
            imports=IMPORTED[level],
            definitions=_chunked_source() if level == "chunked" else "",
            setup=f"""\
head = model.lm_head
model.lm_head = torch.nn.Identity()  # the loss takes the hidden state, and makes its logits itself

def head_and_loss(hidden, labels, vocab_size):
    targets = F.pad(labels, (0, 1), value=-100)[..., 1:]
    return {call}

model.loss_function = head_and_loss
""",
        )

    def applied(self, run: Run, level: str) -> AbstractContextManager[None]:
        from explorer.optimizations.head_in_loss import head_in_loss

        if level == "fused":
            from explorer.kernels.linear_cross_entropy import linear_cross_entropy

            return head_in_loss(run, level, linear_cross_entropy)
        from explorer.optimizations.chunked_loss import chunked_cross_entropy

        return head_in_loss(run, level, chunked_cross_entropy)


def _chunked_source() -> str:
    """chunked_loss.py without its imports: what runs here is what the script has."""
    source = Path(__file__).with_name("chunked_loss.py").read_text(encoding="utf-8")
    return re.split(r"\n\n(?=CHUNK_BYTES)", source, maxsplit=1)[1]
