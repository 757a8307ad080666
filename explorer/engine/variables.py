"""Environment variables that change what is measured. Pure functions over ``Facts``."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.engine.facts import Facts
from explorer.results.environment import Finding


def is_on(facts: Facts, name: str) -> bool:
    """Whether the variable is set to what torch and Triton read as yes."""
    return facts.variables.get(name, "").strip().lower() in ("1", "true", "yes", "on", "y")


def variable_findings(facts: Facts) -> Iterator[Finding]:
    """One finding for each variable that would make figures mean something else than they say."""
    if is_on(facts, "TRITON_INTERPRET"):
        yield Finding(
            severity="problem" if facts.gpus else "note",
            text="TRITON_INTERPRET is on: Triton kernels run in Python on the CPU, for tests. Unset it to measure.",
        )
    if not facts.gpus:
        return
    if is_on(facts, "CUDA_LAUNCH_BLOCKING"):
        yield _problem(
            "CUDA_LAUNCH_BLOCKING is on: every kernel is waited for, so steps are slower and overlap nothing. Unset it."
        )
    if is_on(facts, "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield _problem(
            "PYTORCH_NO_CUDA_MEMORY_CACHING is on: each tensor is asked from the driver, slowly, and peak memory is "
            "not counted. Unset it."
        )
    if is_on(facts, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        yield _problem(
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is on: products run in TF32 where fp32 is asked for, so the baseline is "
            "none. Unset it."
        )
    yield from _tf32_override(facts)
    yield from _allocator(facts)
    workspace = facts.variables.get("CUBLAS_WORKSPACE_CONFIG")
    if workspace:
        yield _note(f"CUBLAS_WORKSPACE_CONFIG is {workspace}: cuBLAS may choose other kernels and hold other memory.")


def _tf32_override(facts: Facts) -> Iterator[Finding]:
    """Source: NVIDIA's libraries read NVIDIA_TF32_OVERRIDE: 0 forbids TF32 whatever the program asks for."""
    override = facts.variables.get("NVIDIA_TF32_OVERRIDE")
    if override == "0":
        yield _problem("NVIDIA_TF32_OVERRIDE is 0: the level tf32 changes nothing. Unset it.")
    elif override:
        yield _problem(
            f"NVIDIA_TF32_OVERRIDE is {override}: products may run in TF32 where fp32 is asked for. Unset it."
        )


def _allocator(facts: Facts) -> Iterator[Finding]:
    # torch reads the first where both are set; the second is its older name.
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        value = facts.variables.get(name)
        if not value:
            continue
        if "cudaMallocAsync" in value:
            yield _note(f"{name} is {value}: CUDA's own allocator is used, which counts held memory in another way.")
        elif "expandable_segments:true" in value.lower().replace(" ", ""):
            yield _note(
                f"{name} is {value}: with expandable segments less memory is held than by default. Compare only runs "
                "that were made so."
            )
        else:
            yield _note(f"{name} is {value}: held memory and its cost are this setting's. Compare only runs made so.")
        return


def _problem(text: str) -> Finding:
    return Finding(severity="problem", text=text)


def _note(text: str) -> Finding:
    return Finding(severity="note", text=text)
