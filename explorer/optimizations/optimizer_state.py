"""The run's optimizer made anew with other flags, its state carried over and back. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from explorer.optimizations.base import Run


@contextmanager
def remade(run: Run, **flags: Any) -> Iterator[Optimizer]:
    """While entered, ``run.optimizer`` is another of its class with ``flags``; the same averages, steps and settings.

    Made anew and not changed in place: some flags set more than a group's entry when an optimizer is made.
    """
    before = run.optimizer
    assert before is not None
    make: Any = type(before)
    after: Optimizer = make([{**group, **flags} for group in before.param_groups], **flags)
    _hand_over(before, after)
    run.optimizer = after
    try:
        yield after
    finally:
        run.optimizer = before
        _hand_over(after, before)
        for old, new in zip(before.param_groups, after.param_groups, strict=True):
            # A learning rate changed meanwhile stays changed; as a tensor it was the graph's own.
            kept = {name: value for name, value in new.items() if name != "params" and name not in flags}
            old.update({name: float(v) if isinstance(v, torch.Tensor) else v for name, v in kept.items()})


def _hand_over(giver: Optimizer, taker: Optimizer) -> None:
    """Move all state; Adam's step count to where ``taker`` wants it: beside the weights, or on the host."""
    for group in taker.param_groups:
        beside = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            if parameter not in giver.state:
                continue
            state = giver.state.pop(parameter)
            if "step" in state:
                state["step"] = state["step"].to(parameter.device if beside else "cpu", torch.float32)
            taker.state[parameter] = state
