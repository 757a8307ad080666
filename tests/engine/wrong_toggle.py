"""A toggle that does harm, at each level in a way of its own. Imported by this folder's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from explorer.optimizations.base import Level, Optimization, Run, Stage

FORCED_TOKEN = 5
FORCED_AT = 3


class WrongToggle(Optimization):
    name = "wrong"
    label = "Wrong"
    tier = "system"
    stage = Stage.LOOP  # entered last, so that it spoils whatever the others have put in place
    workloads = ("train", "generate")
    levels = tuple(
        Level(id=id, label=id, help=id)
        for id in (
            "no",
            "gelu_in_block_1",
            "not_causal",
            "backward_of_block_0",
            "slower_learning",
            "exploding",
            "nan_weight",
            "infinite_gradient",
            "forced_token",
            "full_memory",
        )
    )

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        with ExitStack() as undo:
            getattr(self, level)(run, undo)
            yield

    def gelu_in_block_1(self, run: Run, undo: ExitStack) -> None:
        """The activation is 1% too large."""
        act = run.model.transformer.h[1].mlp.act
        undo.callback(act.register_forward_hook(lambda module, inputs, output: output * 1.01).remove)

    def not_causal(self, run: Run, undo: ExitStack) -> None:
        """Explicit attention without its mask: every token sees those to come."""
        for block in run.model.transformer.h:
            # A block is called with (hidden states, cache, mask, ...).
            hook = block.register_forward_pre_hook(lambda module, inputs: (*inputs[:2], None, *inputs[3:]))
            undo.callback(hook.remove)

    def backward_of_block_0(self, run: Run, undo: ExitStack) -> None:
        """The forward pass is right, and one gradient 1% too large."""
        weight = run.model.transformer.h[0].mlp.c_fc.weight
        undo.callback(weight.register_hook(lambda gradient: gradient * 1.01).remove)

    def slower_learning(self, run: Run, undo: ExitStack) -> None:
        """Loss and gradients are right, and each update 1% too small."""
        self._learn_at(run, run.config.lr * 0.99)

    def exploding(self, run: Run, undo: ExitStack) -> None:
        self._learn_at(run, 1e30)

    def _learn_at(self, run: Run, lr: float) -> None:
        assert run.optimizer is not None
        for group in run.optimizer.param_groups:
            group["lr"] = lr

    def nan_weight(self, run: Run, undo: ExitStack) -> None:
        run.model.transformer.h[1].attn.c_proj.weight.data[3, 4] = torch.nan

    def infinite_gradient(self, run: Run, undo: ExitStack) -> None:
        weight = run.model.transformer.h[0].mlp.c_fc.weight
        undo.callback(weight.register_hook(lambda gradient: gradient * torch.inf).remove)

    def forced_token(self, run: Run, undo: ExitStack) -> None:
        """When text is first written, new token FORCED_AT, from 0, is one that nothing makes likely."""
        calls = iter(range(10_000))

        def force(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            if next(calls) == FORCED_AT:
                output[..., FORCED_TOKEN] += 1e4
            return output

        undo.callback(run.model.lm_head.register_forward_hook(force).remove)

    def full_memory(self, run: Run, undo: ExitStack) -> None:
        if run.config.batch > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
