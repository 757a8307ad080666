"""attention: how softmax(Q K^T / sqrt(D)) V is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

from explorer.config import RunConfig, Workload
from explorer.models import shape_of
from explorer.optimizations.base import Level, Needs, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import Formats, MemoryTerms
from explorer.results.proof import Evidence, Profile, listed

FORCED = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
"""torch.nn.attention.SDPBackend by level, where one is forced."""
UNPLANNED = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
"""Kernels that need no plan for each length of a cache."""
AMPERE = (8, 0)
"""First compute capability with the flash and cuDNN kernels. Source: torch's sdp_utils.cpp."""
HALF = ("fp16", "bf16")
HALF_BY: tuple[tuple[Workload, str, tuple[str, ...]], ...] = (
    ("train", "precision", HALF),
    ("generate", "weight_dtype", (*HALF, "int8")),
)
"""What makes queries, keys and values 16 bits wide, by workload."""
HEAD_SIZES = (16, 32, 64, 128)
"""Numbers a head that the Triton kernel takes. Source: kernels/attention.py."""
FUSED: Mapping[str, str] = {
    "flash": r"flash_fwd_(?!splitkv_combine)|FlashAttnFwd",
    "efficient": r"fmha_cutlassF",
    "cudnn": r"cudnn\w*sdpa(?!\w*bprop)",
    "cpu": r"^aten::_scaled_dot_product_flash_attention_for_cpu$",
    "triton": r"^attention_forward$",
}
"""Forward kernels of fused attention, by level; torch's own on the CPU has none. Source: torch's flash_api.cpp and
kernel_forward.h, cuDNN's names as profilers show them, and kernels/attention.py."""
TORCHS = ("flash", "efficient", "cudnn", "cpu")
"""Of these, the kernels that torch's scaled_dot_product_attention chooses from."""

NAIVE_HALF = '''\
def naive_half(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **_):
    """The explicit matrix of scores, masked and normalized in 16 bits. query, key, value: (B, H, T, D)."""
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    with torch.autocast(query.device.type, enabled=False):  # which would run the softmax in float32
        weights = F.softmax(scores, dim=-1)
    weights = F.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


def boolean_mask(*, mask_function=None, **options):
    """True where attended, (B, 1, T, S); made for every call, and never asks whether a row holds several texts."""
    return sdpa_mask(**options | {"allow_is_causal_skip": False})
'''
"""For exported scripts; ``attention_functions.naive_half`` is the one that runs here."""

OWN = {
    "causal": (
        ("import torch.nn.functional as F",),
        "F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropout, scale=scaling)",
    ),
    "triton": (
        ("from explorer.kernels.attention import causal_attention",),
        "causal_attention(query, key, value, scaling)",
    ),
}
"""For exported scripts that train: what each attends by, and what that is imported from."""


def _fused(*levels: str, masks: bool = True) -> Callable[[Profile], Evidence]:
    """Proof that each block's attention was a fused kernel of one of ``levels``, and nothing else.

    ``masks``: whether the kernels may have been given one in training.
    """

    def judge(profile: Profile) -> Evidence:
        own = [kernel for level in levels for kernel in profile.matching(FUSED[level])]
        others = [k for level, pattern in FUSED.items() if level not in levels for k in profile.matching(pattern)]
        written_out = sum(tally.count for tally in profile.attention_softmax)
        enough = 0 < profile.blocks_passed <= sum(kernel.count for kernel in own)
        seen = f"fused kernels: {listed(own)}"
        if others:
            seen += f"; of another level: {listed(others)}"
        if written_out:
            seen += f"; {written_out} softmaxes over the whole matrix"
        if profile.attention_masks:
            seen += f"; {profile.attention_masks} calls with a mask"
        unmasked = masks or profile.workload == "generate" or not profile.attention_masks
        return Evidence(shown=enough and unmasked and not others and not written_out, seen=seen)

    return judge


def _written_out(*, operator: bool, formats: tuple[str, ...] = ()) -> Callable[[Profile], Evidence]:
    """Proof that attention made the whole matrix, within SDPA's ``operator`` or without it.

    ``formats``: what the softmax may compute in, in training; in generation the weights' own format decides.
    """

    def judge(profile: Profile) -> Evidence:
        fused = [kernel for pattern in FUSED.values() for kernel in profile.matching(pattern)]
        called = profile.operator_count("aten::_scaled_dot_product_attention_math")
        tallies = profile.attention_softmax
        enough = 0 < profile.blocks_passed <= sum(tally.count for tally in tallies)
        fits = not formats or profile.workload == "generate" or all(tally.dtype in formats for tally in tallies)
        seen = "softmax over the whole matrix: " + (", ".join(f"{t.dtype} x{t.count}" for t in tallies) or "none")
        if called or operator:
            seen += f"; SDPA's unfused path x{called}"
        if fused:
            seen += f"; fused: {listed(fused)}"
        as_asked = called >= profile.blocks_passed if operator else called == 0
        return Evidence(shown=enough and as_asked and not fused and fits, seen=seen)

    return judge


TENSORS_KEPT: Mapping[str, int] = {"triton": 5}
"""Of the size of the queries, for the backward pass: queries, keys, values and output, which our own kernel lays out in
another order than the projection after it wants."""


def _kept_of_heads(formats: Formats, *, tensors: int, whole: bool) -> float:
    """Bytes for each element of the queries; ``whole``: SDPA's unfused path computes in float32."""
    return 3 * 4 + formats.product_bytes if whole else tensors * formats.product_bytes


def _kept_of_scores(formats: Formats, *, level: str) -> float:
    """Bytes for each score: what the softmax gave, and where dropout draws its mask and what it left."""
    if level not in ("naive", "naive_half", "math"):
        return 0
    softmax = formats.product_bytes if level == "naive_half" else 4
    multiplied = 4 if level == "math" else formats.product_bytes
    if formats.drops:
        return softmax + 1 + multiplied
    return softmax if softmax == multiplied else softmax + multiplied


class Attention(Optimization):
    name = "attention"
    label = "Attention"
    tier = "algorithm"
    stage = Stage.MODULES
    workloads = ("train", "generate")
    levels = (
        Level(
            id="naive", label="naive", help="The whole T x T matrix in memory; autocast runs its softmax in float32."
        ),
        Level(
            id="naive_half",
            label="naive, half softmax",
            help="The whole matrix, masked and normalized in 16 bits; in generation naive does that already.",
        ),
        Level(id="sdpa", label="SDPA", help="scaled_dot_product_attention; torch picks the kernel."),
        Level(
            id="causal",
            label="SDPA, no mask",
            help="SDPA, causal by its flag alone: under torch.compile, too, no mask is built. Refuses padding.",
        ),
        Level(id="flash", label="SDPA: flash", help="Only FlashAttention's kernel."),
        Level(id="efficient", label="SDPA: efficient", help="Only the memory-efficient kernel; float32 too."),
        Level(id="cudnn", label="SDPA: cuDNN", help="Only cuDNN's kernel; it refuses a one-token prompt."),
        Level(id="math", label="SDPA: math", help="SDPA's own unfused fallback: the whole matrix once more."),
        Level(
            id="triton",
            label="Triton",
            help="This project's own FlashAttention-2 kernels, forward and backward.",
            workloads=("train",),
        ),
    )
    help = (
        "Attention compares every token with every earlier one. Written out, the T x T matrix of scores, its mask, "
        "its softmax and its dropout each go through memory. SDPA's fused kernels walk over it in tiles that stay "
        "on the chip and never store it, so memory grows with T instead of T squared; being causal, they skip the "
        "upper half. That half is skipped only where no mask is given, and transformers gives one whenever "
        "torch.compile traces it; SDPA without a mask says it by a flag."
    )
    cost = (
        "Exact up to rounding, but dropout draws differ between kernels. At short sequences there is little to "
        "save. Flash and cuDNN run only in 16 bits. The attention weights can no longer be looked at."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024, bf16: naive 94.0 ms a step (87.1k tokens/s, 20.3 GiB), SDPA 63.2 "
        "ms (129.6k tokens/s, 12.4 GiB)."
    )
    source = "Dao et al. 2022, arXiv:2205.14135; Rabe and Staats 2021, arXiv:2112.05682; torch.nn.attention"
    code = """\
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

model.set_attn_implementation("sdpa")  # a loaded transformers model

# in a model of your own; q, k, v: (B, H, T, D)
y = F.scaled_dot_product_attention(q, k, v, is_causal=True)

# the same in a loaded model, without the mask that torch.compile would have it build; never with padding
from transformers import AttentionInterface, AttentionMaskInterface

def causal(module, q, k, v, attention_mask, dropout=0.0, scaling=None, **kwargs):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, scale=scaling)
    return y.transpose(1, 2), None

AttentionInterface.register("causal", causal)
AttentionMaskInterface.register("causal", lambda **kwargs: None)
model.set_attn_implementation("causal")

# one kernel or an error
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
    needs = (
        *(
            Needs(level=level, other=other, allowed=allowed, reason=reason, workloads=(workload,))
            for workload, other, allowed in HALF_BY
            for level, reason in (
                ("naive_half", "there is no half precision to compute in"),
                ("flash", "FlashAttention computes in 16 bits only"),
                ("cudnn", "cuDNN's attention computes in 16 bits only"),
            )
        ),
        *(
            Needs(
                level=level,
                other="kv_cache",
                allowed=("off", "dynamic"),
                reason="it takes no mask, and one must hide the room of a static cache that is not used yet",
                workloads=("generate",),
            )
            for level in ("flash", "causal")
        ),
        # Source: check_cudnn_dropout in torch's sdp_utils.cpp. GPT-2's 0.1 would be another probability there.
        Needs(
            level="cudnn",
            other="dropout",
            allowed=("off",),
            reason="cuDNN's attention can drop only with a probability in sixteenths",
            workloads=("train",),
        ),
        Needs(level="triton", other="dropout", allowed=("off",), reason="the Triton kernel has no dropout"),
    )

    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        level: MemoryTerms(
            attention=partial(_kept_of_heads, tensors=TENSORS_KEPT.get(level, 4), whole=level == "math"),
            scores=partial(_kept_of_scores, level=level),
        )
        for level in ("naive", "naive_half", "sdpa", "causal", "flash", "efficient", "cudnn", "math", "triton")
    }

    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "naive": _written_out(operator=False, formats=("float32",)),
        "naive_half": _written_out(operator=False, formats=("float16", "bfloat16")),
        "sdpa": _fused(*TORCHS),
        "causal": _fused(*TORCHS, masks=False),
        "flash": _fused("flash"),
        "efficient": _fused("efficient"),
        "cudnn": _fused("cudnn"),
        "math": _written_out(operator=True),
        "triton": _fused("triton"),
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "triton":
            if device.kind != "cuda":
                return "Triton kernels need a CUDA device; this device is a CPU"
            return device.triton_problem
        if level not in ("flash", "efficient", "cudnn"):
            return None
        if device.kind != "cuda":
            return f"the {level} kernel needs a CUDA device; this device is a CPU"
        if level != "efficient" and (device.capability is None or device.capability < AMPERE):
            have = "unknown" if device.capability is None else "{}.{}".format(*device.capability)
            return f"the {level} kernel needs compute capability 8.0 or later (Ampere); {device.name} has {have}"
        return None

    def unfit(self, level: str, config: RunConfig) -> str | None:
        shape = shape_of(config.model)
        head = 0 if shape is None else shape.width // shape.heads
        allowed = _multiple(level, config)
        if head % allowed:
            return f"this model's heads have {head} numbers; the {level} kernel takes multiples of {allowed}"
        if level == "triton" and shape is not None and head not in HEAD_SIZES:
            sizes = ", ".join(map(str, HEAD_SIZES))
            return f"this model's heads have {head} numbers; the Triton kernel takes {sizes}"
        if level == "flash" and config.workload == "generate" and len(config.prompts) > 1:
            return "it takes no mask, and one must hide the places that shorter prompts leave empty beside longer ones"
        return None

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "naive_half":
            return Snippet(
                imports=(
                    "import torch.nn.functional as F",
                    "from transformers import AttentionInterface, AttentionMaskInterface",
                    "from transformers.masking_utils import sdpa_mask",
                ),
                definitions=NAIVE_HALF,
                setup="""\
AttentionInterface.register("naive_half", naive_half)
AttentionMaskInterface.register("naive_half", boolean_mask)
model.set_attn_implementation("naive_half")
""",
            )
        if level in OWN and config.workload == "train":
            imports, call = OWN[level]
            return Snippet(
                imports=(*imports, "from transformers import AttentionInterface, AttentionMaskInterface"),
                definitions=f"""\
def {level}_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **_):
    \"\"\"query, key, value: (B, H, T, D). Causal by itself: tokens are packed, so that no mask is needed.\"\"\"
    y = {call}
    return y.transpose(1, 2), None
""",
                setup=f"""\
AttentionInterface.register("{level}", {level}_attention)
AttentionMaskInterface.register("{level}", lambda **_: None)
model.set_attn_implementation("{level}")
""",
            )
        setup = 'model.set_attn_implementation("sdpa")'
        without: tuple[str, ...] = ()
        if config.workload == "train" and _would_be_masked(level, config):
            setup = f'AttentionMaskInterface.register("sdpa", lambda **_: None)  # tokens are packed\n{setup}'
            without = ("from transformers import AttentionMaskInterface",)
        backends = (FORCED[level],) if level in FORCED else UNPLANNED if config.workload == "generate" else ()
        if not backends:
            return Snippet(imports=without, setup=setup)
        return Snippet(
            imports=(*without, "from torch.nn.attention import SDPBackend, sdpa_kernel"),
            setup=f"{setup}\nkernels = [{', '.join(f'SDPBackend.{name}' for name in backends)}]",
            around=("sdpa_kernel(kernels)",),
        )

    def process_wide(self, run: Run, level: str) -> AbstractContextManager[None]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # Around the whole run and not around each call, which would cost the host time in every block. With one kernel
        # allowed, a call that it cannot do raises.
        if level in FORCED:
            allowed = [FORCED[level]]
        elif level in ("sdpa", "causal") and run.config.workload == "generate":
            # cuDNN builds a plan for each length of the cache, so for each token: on an H200 80 ms a token.
            allowed = list(UNPLANNED)
        else:
            return nullcontext()
        kernels: AbstractContextManager[None] = sdpa_kernel([getattr(SDPBackend, kernel) for kernel in allowed])
        return kernels

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        """Raises:
        ValueError: triton, and the model's heads are of a size that its kernel does not take.
        """
        from transformers import AttentionInterface, AttentionMaskInterface

        from explorer.optimizations import attention_functions as functions

        attend: Any
        mask: Any
        match level:
            case "naive_half":
                attend, mask = functions.naive_half, functions.mask_always
            case "sdpa":
                attend, mask = functions.sdpa, functions.mask_where_needed
            case "causal":
                attend, mask = functions.sdpa, functions.mask_unless_padded
            case "triton":
                head = run.model.config.n_embd // run.model.config.n_head
                if head not in HEAD_SIZES:
                    allowed_sizes = ", ".join(map(str, HEAD_SIZES))
                    raise ValueError(
                        f"attention = triton: this model's heads have {head} numbers; allowed: {allowed_sizes}"
                    )
                attend, mask = functions.triton(), functions.mask_unless_padded
            case _:
                attend, mask = functions.sdpa, functions.mask_if_padded
        name = registered_name(level)
        AttentionInterface.register(name, attend)
        # Without its mask function transformers would ignore padding under this name.
        AttentionMaskInterface.register(name, mask)
        before = run.model.config._attn_implementation
        run.model.set_attn_implementation(name)
        try:
            yield
        finally:
            run.model.set_attn_implementation(before)


def _would_be_masked(level: str, config: RunConfig) -> bool:
    """Whether transformers would give SDPA a mask in training that it has not here: it makes one where torch.compile
    traces it and (5.17) where a CUDA graph is recorded. Here ``sdpa`` is given one in the first case alone.
    """
    recorded, traced = config.level("cuda_graph") is not None, config.level("compile") == "model"
    return (recorded or traced) if level in FORCED else recorded and not traced


def _multiple(level: str, config: RunConfig) -> int:
    """Of which a head's numbers must be a multiple: they are read 16 bytes at a time; flash pads them by itself.

    Source: torch 2.11 to 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    if level == "cudnn":
        return 8
    if level != "efficient":
        return 1
    half = "precision" if config.workload == "train" else "weight_dtype"
    return 8 if config.level(half) in ("fp16", "bf16") else 4


def registered_name(level: str) -> str:
    """What transformers knows ``level``'s function by.

    One for each level: torch.compile guards on it, and so never takes one level's code for another's. And none with
    "flash" in it, which transformers takes for FlashAttention's own package and asks for (5.17 to 5.22).
    """
    return f"explorer_{level.replace('flash', 'tiled')}"
