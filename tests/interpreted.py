"""Triton's interpreter, without looking for the same functions again at each launch and each call within a kernel."""

from __future__ import annotations

import inspect
import sys
from typing import Any


def remember_builtins() -> None:
    """Have the interpreter look through each part of Triton's language once for what it puts its own in place of.

    As of Triton 3.7 it does so at each launch and each call of one kernel function by another: two fifths of its time.
    What it then puts in place stays as it is.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None:  # no test that was collected has kernels
        return
    names: dict[Any, list[str]] = {}
    is_builtin = interpreter.tl.core.is_builtin

    def patch(part: Any, *rest: Any) -> None:
        if part not in names:
            names[part] = [name for name, member in inspect.getmembers(part) if is_builtin(member)]
        for name in names[part]:
            member = getattr(part, name)
            if is_builtin(member):
                interpreter._patch_attr(part, name, member, *rest)

    interpreter._patch_builtin = patch
