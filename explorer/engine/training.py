"""The training step of GPT-2, written as a training script would have it, and the loop that measures it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from explorer.engine.compile_watch import CompileWatch
from explorer.engine.data import Batches
from explorer.engine.memory import StepMemory
from explorer.engine.parts import part
from explorer.engine.telemetry import Telemetry
from explorer.engine.timing import Completed, StepPipeline
from explorer.engine.training_graph import TrainingGraph
from explorer.optimizations.base import Run
from explorer.optimizations.clipped_update import clip_in_update
from explorer.results.sample import Phase, Sample
from explorer.results.statistics import WarmUp


def make_optimizer(run: Run) -> torch.optim.Optimizer:
    """AdamW over all parameters with the run's learning rate and weight decay."""
    return torch.optim.AdamW(run.model.parameters(), lr=run.config.lr, weight_decay=run.config.weight_decay)


def train_step(run: Run, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One optimizer step on ``tokens`` (B, T): next-token loss, backward, clipping, AdamW.

    Returns the loss and the gradient norm before clipping, both scalars on the device; nothing here waits for
    it, but for GradScaler.step, which asks the device whether a gradient is infinite.
    """
    optimizer, scaler = run.optimizer, run.scaler
    assert optimizer is not None
    with part("optimizer"):
        optimizer.zero_grad(set_to_none=True)
    loss = _backward(run, tokens)
    with part("clip"):
        if scaler is not None:
            scaler.unscale_(optimizer)  # clipping must see the true gradients
        if run.config.grad_clip and run.clips_in_update:
            grad_norm = clip_in_update(optimizer, run.model.parameters(), run.config.grad_clip)
        elif run.config.grad_clip:
            grad_norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), run.config.grad_clip)
        else:
            grads = [p.grad for p in run.model.parameters() if p.grad is not None]
            grad_norm = torch.nn.utils.get_total_norm(grads)
    with part("optimizer"):
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return loss, grad_norm


def _backward(run: Run, tokens: torch.Tensor) -> torch.Tensor:
    """Add the gradients of ``tokens`` (B, T), scaled if there is a scaler, and return the loss; in equal parts of B."""
    losses = []
    for rows in tokens.chunk(run.micro_batches):
        with part("forward"), run.autocast():
            # use_cache=False: in training a key/value cache only holds memory.
            loss = run.model(input_ids=rows, labels=rows, use_cache=False).loss
        if run.micro_batches > 1:
            loss = loss / run.micro_batches
        with part("backward"):
            (loss if run.scaler is None else run.scaler.scale(loss)).backward()
        losses.append(loss.detach())
    return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    """What the host knows of a step when it submits it."""

    step: int
    tokens: int
    host_ms: float
    data_wait_ms: float
    synchronizations: int
    peak_allocated_bytes: int
    reserved_bytes: int
    compiled_again: bool


class TrainingLoop:
    """Runs ``train_step`` over batches and turns each step into a Sample, without waiting for any."""

    def __init__(self, run: Run, batches: Batches, telemetry: Telemetry) -> None:
        self._run = run
        self._batches = batches
        self._telemetry = telemetry
        self._memory = StepMemory(run.device)
        self._pipeline: StepPipeline[StepNote] = StepPipeline(run.device)
        self._warmup = WarmUp()
        self._segment = 0
        self._block = -1
        self._alone = True
        self._after_pause = False
        self._began_s = 0.0
        self._graph: TrainingGraph | None = None
        self._compiles = CompileWatch()
        self._told: list[str] = []
        self.replays = run.graphed
        """Whether steps come from a recorded graph; may be set to False to do the same work launch by launch."""
        self.next_step = 0
        self.finished = False  # training goes on until it is stopped

    def begin_segment(self, index: int, *, alone: bool = True) -> None:
        """Time the next steps as segment ``index``. All earlier steps must have been collected.

        ``alone``: whether memory peaks are this run's only.
        """
        self._segment = index
        self._block, self._alone = -1, alone
        self._warmup = WarmUp()
        self.replays = self._run.graphed
        self._graph = TrainingGraph(self._run, train_step) if self.replays else None
        self._compiles = CompileWatch()
        self._run.model.train()
        self._batches.load_by(self._run.data_loading)
        self._pipeline.restart()
        self._began_s = time.perf_counter()

    def begin_block(self, block: int, *, alone: bool) -> None:
        """Go on in the same segment after a pause, with block ``block`` of a comparison.

        Its first step does not count: caches are cold. ``alone``: whether memory peaks are this run's only.
        """
        self._block, self._alone = block, alone
        self.go_on()
        self._began_s = time.perf_counter()

    def go_on(self) -> None:
        """Time from here on: what came since the last step is part of none, and the next one does not count."""
        self._after_pause = True
        self._compiles = CompileWatch()  # what was compiled meanwhile, was by others
        self._pipeline.restart()

    def advance(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``train_step`` on ``tokens`` as the run has it: launched one by one, or replayed."""
        if self._graph is not None and self.replays:
            return self._graph(tokens)
        return train_step(self._run, tokens)

    def step(self) -> None:
        """Submit one training step."""
        run = self._run
        with part("data"):
            tokens, wait_ms = self._batches.next()
        self._memory.begin()
        began = time.perf_counter()
        loss, grad_norm = self.advance(tokens)
        if run.reads_every_loss:
            with part("reading the loss"):
                loss.item()
        host_ms = (time.perf_counter() - began) * 1e3
        compiled = self._compiles.look(self.next_step)
        self._told += compiled
        peak, reserved = self._memory.read()
        peak += 0 if self._graph is None else self._graph.hidden_bytes
        values = [loss, grad_norm]
        synchronizations = int(run.reads_every_loss) + int(run.data_loading == "pageable")
        if run.scaler is not None:
            # The scale as a tensor: get_scale() would wait for the device. torch 2.11-2.13 keep it in _scale.
            assert run.scaler._scale is not None
            values.append(run.scaler._scale)
            assert run.optimizer is not None
            synchronizations += 0 if run.optimizer.defaults.get("fused") else 1
        note = StepNote(
            step=self.next_step,
            tokens=tokens.numel(),
            host_ms=host_ms,
            data_wait_ms=wait_ms,
            synchronizations=synchronizations,
            peak_allocated_bytes=peak,
            reserved_bytes=reserved,
            compiled_again=bool(compiled),
        )
        self._pipeline.submit(values, note)
        self.next_step += 1

    def collect(self, *, all_of_them: bool = False) -> list[Sample]:
        """Samples of the steps that are over and were not yet collected."""
        return [self._sample(step) for step in self._pipeline.collect(all_of_them=all_of_them)]

    @property
    def under_way(self) -> int:
        """Steps that were submitted and not yet collected."""
        return self._pipeline.under_way

    def take_told(self) -> list[str]:
        """What steps submitted since the last call have to tell, a line each."""
        told, self._told = self._told, []
        return told

    @property
    def texts(self) -> int:
        """Training writes no text."""
        return 0

    def take_text(self, row: int = 0) -> str:
        return ""

    def end_text(self, row: int = 0) -> str:
        return ""

    def _sample(self, completed: Completed[StepNote]) -> Sample:
        note, reading = completed.note, self._telemetry.latest()
        loss, grad_norm, *scale = completed.values
        phase: Phase
        if note.compiled_again:
            phase = "compile"
        else:
            phase = "warmup" if self._after_pause else self._warmup.feed(completed.step_ms)
        self._after_pause = False
        return Sample(
            step=note.step,
            segment=self._segment,
            phase=phase,
            block=self._block,
            time_s=completed.time_s,
            tokens=note.tokens,
            step_ms=completed.step_ms,
            host_ms=note.host_ms,
            data_wait_ms=note.data_wait_ms,
            loss=loss,
            grad_norm=grad_norm,
            loss_scale=scale[0] if scale else math.nan,
            # GradScaler skips the update exactly when an unscaled gradient is not finite, and so is its norm then.
            skipped=bool(scale) and not math.isfinite(grad_norm),
            synchronizations=note.synchronizations,
            peak_allocated_bytes=note.peak_allocated_bytes if self._alone else -1,
            reserved_bytes=note.reserved_bytes if self._alone else -1,
            **reading.sample_fields(since_s=self._began_s),
        )
