"""What a kernel does, told by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "loss": r"log_?softmax|softmax_online|nll_loss|cross_entropy",
    "attention": r"flash|fmha|sdpa|attention|cudnn_generated|softmax",
    "matrix products": r"gemm|nvjet|cutlass|xmma|cublas|splitK|::(add|b|badd)?mm\b",
    "AdamW and clipping": r"Adam|multi_tensor|lpnorm|foreach",
    "GeLU": r"gelu|tanh|_pow_|::pow",
    "layer norm, residual": r"layer_norm|var_mean|rsqrt",
    "embedding": r"embedding|index_put|indexFunc",
    "copies": r"^Mem|copy|_to_copy",
}
"""Kinds by what is found in the names of kernels, on the CPU of operators; the first that fits. Inductor names what it
fused. A softmax that is none of the loss is attention's, written out."""
OTHER = "other element-wise"


def kind_of(kernel: str) -> str:
    """The kind of the kernel, on the CPU the operator, of this name."""
    for kind, pattern in KINDS.items():
        if re.search(pattern, kernel, re.IGNORECASE):
            return kind
    return OTHER
