"""Losses that are no numbers and fp16 steps that change nothing: told once, with the step and its cause."""

from __future__ import annotations

import math
from collections.abc import Sequence

from explorer.config import RunConfig
from explorer.results.sample import Sample

SKIPS = 3
"""In a row: GradScaler tries a larger scale now and then, which costs one step and is as it should be."""


class LossWatch:
    """Tells of each once a segment."""

    def __init__(self) -> None:
        self.no_number: str | None = None
        """The step and the cause, once a loss of the current segment was no number."""
        self._segment = -1
        self._last_norm = math.nan
        self._skips: list[Sample] = []
        self._told_scale = False

    def look(self, samples: Sequence[Sample], config: RunConfig) -> list[str]:
        """What these samples, the run's next ones, tell; they were made with ``config``."""
        if config.workload != "train":
            return []
        return [line for sample in samples if (line := self._look(sample, config)) is not None]

    def _look(self, sample: Sample, config: RunConfig) -> str | None:
        if sample.segment != self._segment:
            self._segment = sample.segment
            self._skips.clear()
            self.no_number, self._told_scale = None, False
        if sample.skipped:
            self._skips.append(sample)
            return self._collapsed()
        skips, self._skips = self._skips, []
        norm, self._last_norm = self._last_norm, sample.grad_norm
        if not math.isfinite(sample.loss):
            return None if self.no_number is not None else self._no_number(sample, norm, config)
        if len(skips) < SKIPS or self._told_scale:
            return None
        return (
            f"steps {skips[0].step} to {skips[-1].step} changed no weight: fp16's gradients overflowed until the loss "
            f"scale had halved to {sample.loss_scale:.4g} (init_scale is {config.init_scale:.4g})"
        )

    def _no_number(self, sample: Sample, norm_before: float, config: RunConfig) -> str:
        clip = f"grad_clip {config.grad_clip:g}" if config.grad_clip else "no clipping of gradients"
        # Two whole sentences: they are translated as such.
        self.no_number = (
            f"step {sample.step}: the loss is {sample.loss}, after a gradient norm of {norm_before:.3g}, at a learning "
            f"rate of {config.lr:g} and {clip}: the weights are no numbers any more"
            if math.isfinite(norm_before)
            else f"step {sample.step}: the loss is {sample.loss}, at a learning rate of {config.lr:g} and {clip}: the "
            "weights are no numbers any more"
        )
        return f"{self.no_number}. Speed and memory still hold; to train, begin anew with a lower rate"

    def _collapsed(self) -> str | None:
        if self._told_scale or self._skips[-1].loss_scale >= 1:
            return None
        self._told_scale = True
        return (
            f"step {self._skips[-1].step}: fp16's loss scale fell to {self._skips[-1].loss_scale:.2g} in "
            f"{len(self._skips)} steps that changed no weight: the gradients overflow at any scale. Take bf16, or a "
            "lower learning rate"
        )
