"""What a model writes while it is being trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from explorer.engine.generation import GenerationLoop
from explorer.engine.telemetry import Telemetry
from explorer.engine.tokenizer import Tokenizer
from explorer.optimizations.base import Run
from explorer.optimizations.compiled import as_written


def sample_text(
    run: Run, tokenizer: Tokenizer, positions: int, telemetry: Telemetry, *, asked_to_stop: Callable[[], bool]
) -> str:
    """A continuation of the prompt by the model of ``run`` under its toggles, but as it is written, not compiled.

    Each token is a pass over the whole text: not every attention function made for training knows a cache. Numbers are
    drawn from a generator of its own, and dropout draws none, so that training goes on as if nothing had been. It ends
    early where ``asked_to_stop``.
    """
    config = dataclasses.replace(run.config, workload="generate", batch=1, more_prompts=())
    writing = Run(config=config, device=run.device, model=run.model, autocast=run.autocast, kv_cache="off")
    with as_written(run.model):
        loop = GenerationLoop(writing, tokenizer, positions, telemetry)
        loop.begin_segment(0)
        while not (loop.finished or asked_to_stop()):
            loop.step()
            loop.collect()
        loop.collect(all_of_them=True)
    run.model.train()
    return loop.end_text()
