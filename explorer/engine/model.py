"""GPT-2 with random, bundled or pretrained weights, and the tokenizer that goes with it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.config import RunConfig
from explorer.engine import hub, tokenizer
from explorer.engine.checkpoint import gpt2_config, read_weight_files, read_weights
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.reporting import Report
from explorer.engine.tokenizer import Tokenizer
from explorer.models import MODELS
from explorer.results.home import expanded

INIT_STD = 0.02
"""Source: Radford et al. 2018, section 4.1, kept in the configurations published with GPT-2 (initializer_range)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run in float32 on its device, in training mode, with GPT-2's dropout."""

    model: GPT2LMHeadModel
    tokenizer: Tokenizer
    positions: int
    """Tokens that a sequence can have at most."""
    name: str
    """As RunConfig.model had it."""


def load(
    config: RunConfig, device: torch.device, *, download: bool, progress: Report, cancelled: Callable[[], bool]
) -> LoadedModel:
    """The model that ``config`` names, on ``device``. The caller's random state is left as it was.

    Random weights are drawn on the host from ``config.seed``, so they are the same on every device. They come with
    the bundled tokenizer, pretrained ones with their own.

    Raises:
        BadRequest: there is no such model, its files are wrong, or it does not fit the rest of ``config``.
        Cancelled: ``cancelled`` came true.
    """
    preset = MODELS.get(config.model)
    folder = None if preset is not None else _folder(config.model)
    match config.weights:
        case "random":
            shape = gpt2_config(folder) if folder is not None else preset_config(config.model)
            text = tokenizer.bundled()
            weights = _random_weights(shape, config.seed)
        case "bundled":
            if config.model != "mini":
                raise BadRequest(
                    f"weights=bundled for model {config.model}", "only mini comes with weights", "Use model=mini."
                )
            shape, text = preset_config("mini"), tokenizer.bundled()
            weights = _bundled_weights(shape)
        case "pretrained":
            if folder is None:
                folder = hub.snapshot(config.model, download=download, progress=progress, cancelled=cancelled)
            shape, text = gpt2_config(folder), tokenizer.for_model(folder)
            weights = read_weights(folder, parameter_shapes(shape))
    _check_fits(config, shape, text)
    shape.bos_token_id = shape.eos_token_id = text.end_id
    model = _assemble(shape, weights, device, progress, cancelled)
    return LoadedModel(model=model, tokenizer=text, positions=shape.n_positions, name=config.model)


def preset_config(name: str) -> GPT2Config:
    """The transformers configuration of a model in ``MODELS``, with GPT-2's dropout of 0.1."""
    shape = MODELS[name]
    return GPT2Config(
        vocab_size=shape.vocabulary,
        n_positions=shape.positions,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        bos_token_id=None,
        eos_token_id=None,
    )


def _folder(name: str) -> Path:
    folder = expanded(name)
    if os.path.isdir(folder):  # unlike Path's, false also of what cannot be a name
        return folder
    why = "it is a file, not a folder" if os.path.exists(folder) else "there is no model and no folder of this name"
    raise BadRequest(f"Model {name}", why, f"Allowed: {', '.join(MODELS)}, or a folder saved by transformers.")


def _check_fits(config: RunConfig, shape: GPT2Config, text: Tokenizer) -> None:
    if config.workload == "train" and config.seq > shape.n_positions:
        raise BadRequest(
            f"seq={config.seq} with model {config.model}",
            f"the model has only {shape.n_positions} positions (n_positions)",
            f"Use seq={shape.n_positions} or less.",
        )
    if text.vocabulary > shape.vocab_size:
        raise BadRequest(
            f"Model {config.model}",
            f"its tokenizer has {text.vocabulary} tokens, more than the model's {shape.vocab_size} (vocab_size)",
            "Use the tokenizer and the config.json that belong to these weights."
            if config.weights == "pretrained"
            else f"Random weights are used with the bundled tokenizer: vocab_size must be at least {text.vocabulary}.",
        )


Weights = Iterator[tuple[str, torch.Tensor]]
"""Each parameter's name (without lm_head, which is tied) with its float32 values on the host."""


def _random_weights(shape: GPT2Config, seed: int) -> Weights:
    """GPT-2's own initialization: N(0, 0.02), output projections of the residual path divided by sqrt(2 L).

    Each tensor has its own generator, from (seed, its place): tensors are drawn on all cores in any order, and the
    caller's random state is not touched.
    """
    shapes = parameter_shapes(shape)

    def draw(place: int, name: str, size: torch.Size) -> torch.Tensor:
        if name.endswith(".bias"):
            return torch.zeros(size)
        if ".ln_" in name:
            return torch.ones(size)
        # torch's generator takes 32 bits of its seed; SeedSequence spreads both numbers over them.
        spread = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
        std = INIT_STD / math.sqrt(2 * shape.n_layer) if name.endswith("c_proj.weight") else INIT_STD
        return torch.empty(size).normal_(0.0, std, generator=torch.Generator().manual_seed(spread))

    with ThreadPoolExecutor() as pool:
        drawn = {name: pool.submit(draw, place, name, size) for place, (name, size) in enumerate(shapes.items())}
        try:
            for name in shapes:
                yield name, drawn.pop(name).result()
        finally:
            for future in drawn.values():
                future.cancel()


def _bundled_weights(shape: GPT2Config) -> Weights:
    resource = files("explorer.assets").joinpath("mini.safetensors")
    if not resource.is_file():
        raise BadRequest("weights=bundled", "no bundled weights come with this copy", "Use weights=random.")
    with as_file(resource) as path:
        yield from read_weight_files((path,), parameter_shapes(shape))


def parameter_shapes(shape: GPT2Config) -> Mapping[str, torch.Size]:
    """Each parameter's name and size, without the head's, which is the embedding's."""
    return {name: parameter.shape for name, parameter in _on_meta(shape).named_parameters()}


class _Unfilled(TorchFunctionMode):
    """Leaves what torch.nn.init would fill as it is: on meta, where nothing is, that took two thirds of the time."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _on_meta(shape: GPT2Config) -> GPT2LMHeadModel:
    with torch.device("meta"), _Unfilled():
        return GPT2LMHeadModel._from_config(shape, attn_implementation="eager")


def _assemble(
    shape: GPT2Config, weights: Weights, device: torch.device, progress: Report, cancelled: Callable[[], bool]
) -> GPT2LMHeadModel:
    """The model with ``weights`` on ``device``, filled tensor by tensor so that no second copy is held."""
    total = sum(size.numel() for size in parameter_shapes(shape).values())
    state, done = {}, 0
    for name, tensor in weights:
        if cancelled():
            raise Cancelled
        state[name] = tensor.to(device)
        done += tensor.numel()
        progress("Loading the model", done / 1e6, total / 1e6, "M parameters")
    return assembled(shape, state)


def assembled(shape: GPT2Config, state: Mapping[str, torch.Tensor]) -> GPT2LMHeadModel:
    """The model, in training mode, that has the tensors of ``state`` for its parameters: see ``parameter_shapes``."""
    model = _on_meta(shape)
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    # transformers finds no loss for GPT-2's class name, takes this one, and warns.
    model.loss_type = "ForCausalLM"
    return model.train()
