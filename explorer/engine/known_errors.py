"""Errors of SDPA and Triton that many a script meets: what they mean here, and what to do."""

from __future__ import annotations

import re
import traceback

from explorer.config import RunConfig
from explorer.messages import Problem
from explorer.models import shape_of
from explorer.optimizations import registry
from explorer.results.environment import DeviceInfo

# Source: torch 2.11 to 2.13, aten/src/ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp.
_NO_KERNEL = re.compile(r"No available kernel|No viable backend for scaled_dot_product_attention")
_MASK = re.compile(
    r"Expected attn_mask dtype to be bool or (?:float or )?to match query dtype, but got attn_mask\.dtype: (.+?) and +"
    r"query\.dtype: (.+?) instead"
)
# Source: triton 3.6 to 3.7, runtime/build.py; torch/_inductor raises the same within its own.
_NO_COMPILER = re.compile(r"Failed to find C compiler|Cannot find a working triton installation")
_NO_TRITON = DeviceInfo(
    id="cuda:0",
    kind="cuda",
    name="",
    total_memory_bytes=0,
    capability=(9, 0),
    bf16=True,
    triton_problem="it cannot compile",
)
"""A GPU that can do anything else."""
_PLAIN = ("causal", "torch", "fused", "chunked")
"""Levels that do much of what Triton's does without it."""


def describe_known(error: BaseException, config: RunConfig) -> Problem | None:
    """What to show for ``error`` in a run of ``config``; None where it is none of these."""
    text = str(error)
    mask = _MASK.search(text)
    if mask is not None:
        return _problem(
            error,
            "The attention mask is of a wrong type",
            f"its numbers are {mask[1]}, those of the queries {mask[2]}; scaled_dot_product_attention takes a mask of "
            "bool, or of the queries' own type",
            "Convert it: mask.bool() where true means attended, or mask.to(query.dtype) where it is added.",
        )
    if isinstance(error, RuntimeError) and _NO_KERNEL.search(text):
        return _problem(
            error,
            "SDPA has no kernel for this",
            f"with attention={registry.levels_of(config)['attention']} only one is allowed, and it cannot do "
            f"{_heads(config)} in {_format(config)}",
            "Take attention=sdpa, which picks a kernel that can.",
            flips=(("attention", "sdpa"),),
        )
    if _NO_COMPILER.search(text):
        return _problem(
            error,
            "Triton could not compile",
            "it builds a launcher for each kernel with a C compiler, and found none on PATH nor in the variable CC",
            "Install gcc, or name a compiler in CC; without, take levels that need no Triton.",
            flips=_without_triton(config),
        )
    if type(error).__module__.startswith("triton."):
        return _problem(
            error,
            "Triton could not compile a kernel",
            f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else 'no message'}",
            "The details name its line. Take levels that need no Triton, or another version of it.",
            flips=_without_triton(config),
        )
    return None


def _heads(config: RunConfig) -> str:
    shape = shape_of(config.model)
    return "this model's heads" if shape is None else f"heads of {shape.width // shape.heads} numbers"


def _format(config: RunConfig) -> str:
    levels = registry.levels_of(config)
    of_weights = levels["weight_dtype"] if config.workload == "generate" else "fp32"
    return of_weights if of_weights in ("fp16", "bf16") else levels["precision"]


def _without_triton(config: RunConfig) -> tuple[tuple[str, str], ...]:
    """The toggles of ``config`` that need Triton, each with a level that does not, the likeliest first."""
    levels = registry.levels_of(config)
    found = []
    for optimization in registry.OPTIMIZATIONS:
        free = [level for level in optimization.level_ids() if optimization.unavailable(level, _NO_TRITON) is None]
        if config.workload in optimization.workloads and levels[optimization.name] not in free:
            instead = next((level for level in _PLAIN if level in free), free[0])
            found.append((optimization.name, instead))
    return tuple(found)


def _problem(
    error: BaseException, what: str, why: str, remedy: str, flips: tuple[tuple[str, str], ...] = ()
) -> Problem:
    detail = "".join(traceback.format_exception(error))
    return Problem(what=what, why=why, remedy=remedy, detail=detail, flips=flips)
