"""One run, from loading to leaving: model, data, optimizer and the toggles entered in order, left undone."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import torch

from explorer.config import RunConfig
from explorer.engine import data, model, parking, saving
from explorer.engine.errors import BadRequest
from explorer.engine.generation import GenerationLoop
from explorer.engine.no_waits import no_waits
from explorer.engine.telemetry import Telemetry
from explorer.engine.tokenizer import Tokenizer
from explorer.engine.training import TrainingLoop, make_optimizer
from explorer.engine.training_text import sample_text
from explorer.optimizations import registry
from explorer.optimizations.base import Run
from explorer.results.environment import DeviceInfo
from explorer.results.flops import flop_per_token

Report = Callable[[str, float | None, float | None, str], None]
"""Called with what is being done, how much of it is done, of how much (None: unknown), in which unit."""

LIVE = (
    *("levels", "batch", "seq", "lr", "weight_decay", "grad_clip"),
    *("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "stop"),
)
"""What may change while a run is going. The rest is what makes it that run."""


def use_full_fp32() -> None:
    """Make float32 products really float32 in this process: the baseline that toggles start from.

    Only the products: cuDNN's own setting is inherited by what is left unset, and GPT-2 has no convolutions.
    """
    torch.backends.cuda.matmul.fp32_precision = "ieee"


def check(config: RunConfig, device: DeviceInfo) -> RunConfig:
    """``config`` in normal form with its device resolved.

    Raises:
        BadRequest: a toggle, level or combination that cannot run on ``device``.
    """
    config = dataclasses.replace(registry.normalised(config), device=device.id)
    found = registry.problems(config, device)
    if found:
        levels = registry.levels_of(config)
        why = "; ".join(f"{name}={levels[name]}: {reason}" for name, reason in found.items())
        raise BadRequest(what=f"This cannot run on {device.name}", why=why, remedy="Choose other levels for these.")
    return config


class Session:
    """The live side of a run. A context manager: leaving takes every toggle off again and frees the memory.

    Raises (on construction):
        BadRequest: the model, text or settings cannot be used as asked.
        Cancelled: ``cancelled`` said so while loading.
    """

    def __init__(
        self,
        config: RunConfig,
        device: DeviceInfo,
        *,
        download: bool,
        report: Report,
        cancelled: Callable[[], bool],
    ) -> None:
        self._info = device
        self._process_wide = ExitStack()
        self._toggles = ExitStack()
        self._resources = ExitStack()
        config = check(config, device)
        use_full_fp32()
        torch_device = torch.device(device.id)
        if torch_device.type == "cuda":
            torch.cuda.set_device(torch_device)
        with ExitStack() as opening:
            report(f"loading {config.model}", None, None, "")
            loaded = model.load(config, torch_device, download=download, progress=report, cancelled=cancelled)
            telemetry = Telemetry(device)
            opening.callback(telemetry.close)
            opening.enter_context(no_waits())
            torch.manual_seed(config.seed)
            self.run = Run(config=config, device=torch_device, model=loaded.model)
            self._positions = loaded.positions
            self._tokenizer = loaded.tokenizer
            self._telemetry = telemetry
            multiplied = sum(parameter.numel() for parameter in loaded.model.parameters())
            # Before any toggle is entered: what the model asks for, not what a setting makes of it.
            self._multiplied = multiplied - loaded.model.transformer.wpe.weight.numel()
            self._batches: data.Batches | None = None
            self.loop: TrainingLoop | GenerationLoop
            if config.workload == "train":
                stream = data.token_stream(
                    config, loaded.tokenizer, download=download, progress=report, cancelled=cancelled
                )
                self._batches = opening.enter_context(
                    data.Batches(stream, batch=config.batch, seq=config.seq, seed=config.seed, device=torch_device)
                )
                self.run.optimizer = make_optimizer(self.run)
                self.loop = TrainingLoop(self.run, self._batches, telemetry)
            else:
                self.loop = GenerationLoop(self.run, loaded.tokenizer, self._positions, telemetry)
            self._resources = opening.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave_toggles()
        finally:
            self._resources.close()
            del self.run, self.loop, self._batches
            gc.collect()
            if self._info.kind == "cuda":
                torch.cuda.empty_cache()

    @property
    def config(self) -> RunConfig:
        """What runs now."""
        return self.run.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model's text."""
        return self._tokenizer

    @property
    def flop_per_token(self) -> float | None:
        """Of training as it is set now; None in generation."""
        if self.config.workload != "train":
            return None
        shape = self.run.model.config
        return flop_per_token(
            parameters=self._multiplied, layers=shape.n_layer, width=shape.n_embd, seq=self.config.seq
        )

    @property
    def batches(self) -> data.Batches:
        """Training's batches, those that its loop takes: who takes one here takes it from the loop."""
        assert self._batches is not None
        return self._batches

    def begin_segment(self, index: int) -> None:
        """Enter the toggles and begin segment ``index``."""
        self._enter_toggles()
        self.loop.begin_segment(index)

    def begin_beside_another(self) -> None:
        """Enter the toggles and begin the first segment while another session holds memory: peaks are not told."""
        assert isinstance(self.loop, TrainingLoop)
        self._enter_toggles()
        self.loop.begin_segment(0, alone=False)

    def suspend(self) -> None:
        """Leave the process's flags as they were, so that another session can run in it. All steps must be collected.

        The run itself stays under its toggles: what they compiled or recorded serves the next block, too.
        """
        self._process_wide.close()

    def resume(self, block: int, *, alone: bool) -> None:
        """Set the process's flags again and go on in the same segment, with block ``block`` of a comparison.

        ``alone``: whether no other session holds memory, so that peaks are this one's.
        """
        assert isinstance(self.loop, TrainingLoop)
        registry.enter_process_wide(self._process_wide, self.run)
        self.loop.begin_block(block, alone=alone)

    def sample_text(self, *, asked_to_stop: Callable[[], bool]) -> str:
        """What the model in training writes now, by the settings of generation. All steps must have been collected.

        Nothing of the training changes, and no step's time has it in.
        """
        assert isinstance(self.loop, TrainingLoop)
        text = sample_text(self.run, self._tokenizer, self._positions, self._telemetry, asked_to_stop=asked_to_stop)
        self.loop.go_on()
        return text

    def save_model(self, folder: Path) -> None:
        """Write the model as it is trained by now, outside of any step's time. All steps must have been collected.

        Raises:
            BadRequest: ``folder`` is there and not empty, or cannot be made.
            RuntimeError: the disk is full or fails.
        """
        assert isinstance(self.loop, TrainingLoop)
        try:
            saving.save(self.run.model, self._tokenizer, folder)
        finally:
            self.loop.go_on()

    def park(self, path: Path) -> None:
        """Write the state of the training to ``path``. Every toggle must have been left: see ``change_to``.

        Raises:
            RuntimeError: the disk is full or fails.
        """
        parking.park(self.run, path, step=self.loop.next_step, batch=self.batches.index)

    def unpark(self, path: Path) -> None:
        """Go on from what ``park`` wrote, of the same run; before the first segment begins."""
        self.loop.next_step, batch = parking.unpark(self.run, path)
        self.batches.skip_to(batch)

    def accept(self, config: RunConfig) -> RunConfig:
        """``config`` as ``change_to`` will take it.

        Raises:
            BadRequest: it differs in more than may change live, or cannot run here. Nothing was changed.
        """
        try:
            config = check(config, self._info)
        except ValueError as error:
            raise error if isinstance(error, BadRequest) else BadRequest(what="Not changed", why=str(error)) from error
        for field in dataclasses.fields(RunConfig):
            if field.name not in LIVE and getattr(config, field.name) != getattr(self.config, field.name):
                raise BadRequest(
                    what="Not changed",
                    why=f"{field.name} is fixed while a run is going",
                    remedy="Stop the run and start another.",
                )
        if config.more_prompts and config.batch != self.config.batch:
            raise BadRequest(
                what="Not changed",
                why="the batch is fixed while several prompts are continued",
                remedy="Stop the run and start another.",
            )
        if config.workload == "train" and config.seq > self._positions:
            raise BadRequest(
                what="Not changed",
                why=f"seq is {config.seq}, and this model sees at most {self._positions} tokens",
                remedy=f"Use a seq of at most {self._positions}.",
            )
        return config

    def change_to(self, config: RunConfig) -> None:
        """Take the toggles off and make an accepted ``config`` the one that the next ``begin_segment`` enters.

        Weights and optimizer state stay. All steps must have been collected.
        """
        self._leave_toggles()
        self.run.config = config
        if self._batches is not None:
            self._batches.resize(config.batch, config.seq)
        if self.run.optimizer is not None:
            for group in self.run.optimizer.param_groups:
                group["lr"], group["weight_decay"] = config.lr, config.weight_decay

    def _enter_toggles(self) -> None:
        registry.enter_process_wide(self._process_wide, self.run)
        registry.enter_on_run(self._toggles, self.run)

    def _leave_toggles(self) -> None:
        try:
            self._toggles.close()
        finally:
            self._process_wide.close()
