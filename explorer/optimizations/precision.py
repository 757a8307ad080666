"""precision: the number format that matrix products run in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from explorer.config import RunConfig
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile, listed

if TYPE_CHECKING:
    import torch

AMPERE = (8, 0)
"""First compute capability with TF32 and bfloat16 tensor cores. Source: CUDA C++ programming guide."""
# How cuBLAS and CUTLASS name their float32 products. nvjet kernels exist for tensor cores only, which multiply no
# float32: with float32 inputs (the s after the architecture) they run in TF32.
TF32_PRODUCT = r"tf32|s1688gemm|nvjet_(sm\d+_)?s"
FULL_PRODUCT = r"sgemm|gemm_f32f32_f32f32|_simt_|_ffma"


def float32_weights(profile: Profile) -> bool:
    """Whether the model's weights are float32, by its layer norms: autocast casts only what is multiplied."""
    return bool(profile.norms) and all(tally.dtype == "float32" for tally in profile.norms)


def _multiplies(dtype: str) -> Callable[[Profile], Evidence]:
    """Proof that autocast ran all products with weights (mm and addmm) in ``dtype``; attention's (bmm) may differ."""

    def judge(profile: Profile) -> Evidence:
        weights = [tally for tally in profile.products if tally.op in ("mm", "addmm")]
        shown = bool(weights) and all(tally.dtype == dtype for tally in weights)
        seen = "matrix products: " + (", ".join(f"{t.op} {t.dtype} x{t.count}" for t in profile.products) or "none")
        if dtype == "float16" and profile.workload == "train":
            scaled = profile.operator_count("aten::_amp_foreach_non_finite_check_and_unscale_")
            seen += "; gradients unscaled" if scaled else "; no gradient was unscaled"
            shown = shown and scaled > 0
        if profile.workload == "generate" and dtype != "float32" and not float32_weights(profile):
            seen += "; no weight was cast: all had this format already"
            shown = False
        return Evidence(shown=shown, seen=seen)

    return judge


def _rounds_inputs(*, wanted: bool) -> Callable[[Profile], Evidence]:
    """Proof that float32 products ran in TF32, or that they did not."""

    def judge(profile: Profile) -> Evidence:
        products = _multiplies("float32")(profile)
        if profile.workload == "generate" and profile.norms and not float32_weights(profile):
            seen = f"{products.seen}; the weights themselves are in 16 bits or less"
            return Evidence(shown=profile.tf32_allowed == wanted, seen=seen)
        rounded, full = profile.matching(TF32_PRODUCT), profile.matching(FULL_PRODUCT)
        rounded_us, full_us = (sum(kernel.total_us for kernel in kernels) for kernels in (rounded, full))
        # Some shapes have no TF32 kernel; most of the time must be spent in those that have.
        mostly = rounded_us > full_us or not (rounded or full)
        named = mostly if wanted else not rounded
        told = "; ".join(
            [f"TF32 {'allowed' if profile.tf32_allowed else 'not allowed'}"]
            + [f"{name}: {listed(kernels)}" for name, kernels in (("TF32", rounded), ("float32", full)) if kernels]
            + ([] if rounded or full or profile.device == "cpu" else ["no kernel's name tells which"])
        )
        shown = products.shown and profile.tf32_allowed == wanted and named
        return Evidence(shown=shown, seen=f"{products.seen}; {told}")

    return judge


class Precision(Optimization):
    name = "precision"
    label = "Precision"
    tier = "framework"
    stage = Stage.LOOP
    workloads = ("train", "generate")
    levels = (
        Level(id="fp32", label="float32", help="Every number in 32 bits, products included."),
        Level(id="tf32", label="TF32", help="Stored in 32 bits; products round their inputs to 10 bits of mantissa."),
        Level(id="fp16", label="float16 + scaler", help="Autocast to float16; the loss is scaled against underflow."),
        Level(id="bf16", label="bfloat16", help="Autocast to bfloat16: float32's range, coarser; no scaler."),
    )
    help = (
        "Matrix products run on tensor cores in a 16-bit format and move half the bytes, while weights, optimizer "
        "state, layer norms and the loss stay in float32 (automatic mixed precision). TF32 keeps everything in 32 "
        "bits and only lets products round their inputs."
    )
    cost = (
        "Rounding: about 1e-3 relative in float16 and TF32, 1e-2 in bfloat16. Training keeps the float32 weights "
        "and casts them each step, so a batch too small to fill the GPU gains nothing. float16's largest number is "
        "65504: steps whose scaled gradients overflow are skipped, and without a fused optimizer the scaler makes "
        "the host wait once a step. In generation autocast casts every weight at every token: weight_dtype is made for "
        "that. A CPU without units for the format emulates it, many times slower than float32."
    )
    expect = (
        "On an H200, GPT-2 124M, B = 8, T = 1024: fp32 207 ms a step (39.5k tokens/s, 24.3 GiB), tf32 97.8 ms "
        "(83.8k, 24.3 GiB), fp16 112.9 ms (72.6k, 20.3 GiB), bf16 94.0 ms (87.1k tokens/s, 20.3 GiB)."
    )
    source = "Micikevicius et al. 2018, arXiv:1710.03740; docs.pytorch.org/docs/stable/amp.html"
    code = """\
# bf16
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(input_ids=tokens, labels=tokens).loss
loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()

# fp16: scale the loss, unscale before clipping
scaler = torch.amp.GradScaler("cuda")  # once
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(input_ids=tokens, labels=tokens).loss
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()

# tf32
torch.backends.cuda.matmul.fp32_precision = "tf32"
"""
    # Largest seen on a three-layer model's gradients on the CPU: fp16 1.4e-3, bf16 1.4e-2. TF32 rounds as fp16 does.
    tolerance: ClassVar[Mapping[str, float]] = {"tf32": 5e-3, "fp16": 5e-3, "bf16": 3e-2}

    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {
        level: MemoryTerms(product_bytes=4 if level in ("fp32", "tf32") else 2)
        for level in ("fp32", "tf32", "fp16", "bf16")
    }
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {
        "fp32": _rounds_inputs(wanted=False),
        "tf32": _rounds_inputs(wanted=True),
        "fp16": _multiplies("float16"),
        "bf16": _multiplies("bfloat16"),
    }

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        if level == "tf32" and device.kind != "cuda":
            return "TF32 is a mode of NVIDIA's tensor cores; this device is a CPU"
        if level == "tf32" and (device.capability is None or device.capability < AMPERE):
            return f"TF32 needs compute capability 8.0 or later (Ampere); {having(device)}"
        if level == "bf16" and device.kind == "cuda" and not device.bf16:
            return f"bfloat16 needs compute capability 8.0 or later (Ampere); {having(device)}. float16 runs here"
        return None

    def snippet(self, level: str, config: RunConfig) -> Snippet:
        if level == "tf32":
            return Snippet(setup='torch.backends.cuda.matmul.fp32_precision = "tf32"')
        dtype = {"fp16": "torch.float16", "bf16": "torch.bfloat16"}[level]
        autocast = f"torch.autocast(device.type, dtype={dtype})"
        if level == "bf16" or config.workload == "generate":
            return Snippet(forward=(autocast,))
        return Snippet(
            forward=(autocast,),
            before_steps=f"scaler = torch.amp.GradScaler(device.type, init_scale={config.init_scale!r})",
            backward="scaler.scale(loss).backward()",
            after_backward="scaler.unscale_(optimizer)  # clipping needs the true gradients",
            update="scaler.step(optimizer)\nscaler.update()",
        )

    def process_wide(self, run: Run, level: str) -> AbstractContextManager[None]:
        return _tf32_products() if level == "tf32" else nullcontext()

    def applied(self, run: Run, level: str) -> AbstractContextManager[None]:
        import torch

        if level == "tf32":
            return nullcontext()
        return _autocast(run, {"fp16": torch.float16, "bf16": torch.bfloat16}[level])


def having(device: DeviceInfo) -> str:
    """Which compute capability ``device`` has, in words."""
    have = "unknown" if device.capability is None else "{}.{}".format(*device.capability)
    return f"{device.name} has {have}"


@contextmanager
def _tf32_products() -> Iterator[None]:
    import torch

    # Only this interface: reading the older allow_tf32 after it was set raises on torch 2.13.
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@contextmanager
def _autocast(run: Run, dtype: torch.dtype) -> Iterator[None]:
    import torch

    before = run.autocast, run.scaler
    init_scale = run.config.init_scale
    scaler = None
    if dtype == torch.float16 and run.config.workload == "train":
        scaler = torch.amp.GradScaler(run.device.type, init_scale=init_scale)
        # A scale found earlier in this run goes on, unless another first scale was asked for since.
        kept_for, state = run.kept.get("precision", (None, {}))
        if kept_for == init_scale:
            scaler.load_state_dict(state)
    run.autocast, run.scaler = partial(torch.autocast, run.device.type, dtype=dtype), scaler
    try:
        yield
    finally:
        run.autocast, run.scaler = before
        if scaler is not None:
            run.kept["precision"] = (init_scale, scaler.state_dict())
