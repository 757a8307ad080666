"""After a run: does the device still answer, and is its memory back?"""

from __future__ import annotations

import gc

import torch
from torch._subclasses.fake_tensor import FakeTensor

GIB = 2**30
LEFT_SHARE = 0.01
LEFT_BYTES = 128 * 2**20
"""cuBLAS's workspaces stay, on Hopper 64 MiB for each of three streams. What is left is a run's when it is more than
this and LEFT_SHARE."""


def in_use_bytes() -> int:
    """What live tensors of this process hold of the current CUDA device; 0 where none is in use."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return 0
    return int(torch.cuda.memory_allocated())


def spoilt(before_bytes: int) -> str | None:
    """Why this process should run nothing more, or None where it may.

    Args:
        before_bytes: ``in_use_bytes`` before the run that has just ended and been cleaned up after.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except torch.OutOfMemoryError:
        return "the device has not one byte left"
    except RuntimeError as error:
        # After an illegal access, an assertion or a failed launch in a kernel every call gives the same error.
        return f"the device answers every call with an error: {str(error).splitlines()[0]}"
    left_bytes = in_use_bytes() - before_bytes
    total_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if left_bytes > max(LEFT_BYTES, LEFT_SHARE * total_bytes):
        why = _of_all_alive("cuda") or "something that Python does not see keeps them, such as a CUDA graph"
        return f"{left_bytes / GIB:.2f} GiB of the run were not given back: {why}"
    return None


def largest_alive(kind: str, most: int = 3) -> str:
    """The largest tensors on devices of this kind that Python holds, and what holds each; empty without any."""
    return ", ".join(alive_tensors(kind, most))


def _of_all_alive(kind: str) -> str:
    """As ``largest_alive``, by a search of what the imports made, too: a list of theirs may be what holds a tensor.

    It takes some tenths of a second, and freezes what is alive now: for a process that has lost memory already.
    """
    gc.unfreeze()
    try:
        return largest_alive(kind)
    finally:
        gc.freeze()


def alive_tensors(kind: str, most: int) -> list[str]:
    """As ``largest_alive``, each on its own."""
    # Frozen objects, which the imports made, are not among these; a view's memory is counted at its base. What
    # torch.compile and torch.export traced with stays, too: tensors that say they are on the device and are nowhere.
    alive = [
        o
        for o in gc.get_objects()
        if issubclass(type(o), torch.Tensor) and not issubclass(type(o), FakeTensor) and o.device.type == kind
    ]
    alive = sorted((t for t in alive if t._base is None), key=lambda t: t.nbytes, reverse=True)[:most]
    return [
        f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)} of {t.nbytes / 2**20:,.0f} MiB in {_holder(t, alive)}"
        for t in alive
    ]


def _holder(tensor: torch.Tensor, ours: list[torch.Tensor]) -> str:
    """What refers to ``tensor`` but ``ours``, a list of the caller's: a name in a dict, or the type of it."""
    for holder in gc.get_referrers(tensor):
        if holder is ours or type(holder).__name__ in ("frame", "list_iterator"):
            continue
        if isinstance(holder, dict):
            # A loop: a generator's closure would be one more holder.
            for name, held in holder.items():
                if held is tensor:
                    return f"a dict under {name!r}"
            return "a dict, as a key"  # an optimizer's state is kept by its parameters
        if type(holder).__name__ == "cell":
            return "a function's closure"
        return f"a {type(holder).__qualname__}"
    return "a call that has not returned"
