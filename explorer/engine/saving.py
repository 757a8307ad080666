"""A trained model as a folder that transformers loads, and so does this explorer: weights=pretrained."""

from __future__ import annotations

import copy
from pathlib import Path

import tokenizers
import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest
from explorer.engine.model import assembled, parameter_shapes
from explorer.engine.tokenizer import Tokenizer
from explorer.results.atomic import check_new_folder, new_folder


def check(config: RunConfig, folder: Path) -> None:
    """See whether a run of ``config`` can save its model to ``folder``.

    Raises:
        BadRequest: it trains none, or ``folder`` is there and not empty, or cannot be made.
    """
    if config.workload != "train":
        raise BadRequest("Not saved", "generation changes no weights", "Set the workload to train.")
    try:
        check_new_folder(folder)
    except ValueError as error:
        raise BadRequest("Not saved", str(error)) from error


def save(model: GPT2LMHeadModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``model``, which may be under toggles, with its tokenizer to ``folder``, in float32; whole or not at all.

    Raises:
        BadRequest: ``folder`` is there and not empty, or cannot be made.
        RuntimeError: the disk is full or fails.
    """
    plain = without_toggles(model)
    try:
        with new_folder(folder) as made:
            plain.save_pretrained(made)
            _tokenizer(tokenizer, plain.config.n_positions).save_pretrained(made)
    except ValueError as error:
        raise BadRequest("Not saved", str(error)) from error


def without_toggles(model: GPT2LMHeadModel) -> GPT2LMHeadModel:
    """A copy of ``model`` on the host, as transformers made it: modules of toggles and rows of padding are left out."""
    shape = copy.deepcopy(model.config)
    weights = {
        # A padded vocabulary has rows that belong to no token at its end.
        name: model.get_parameter(name).detach()[: size[0]].to("cpu", torch.float32, copy=True)
        for name, size in parameter_shapes(shape).items()
    }
    return assembled(shape, weights)


def _tokenizer(tokenizer: Tokenizer, positions: int) -> PreTrainedTokenizerFast:
    end = tokenizer.token_bytes(tokenizer.end_id).decode()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
        bos_token=end,
        eos_token=end,
        unk_token=end,
        model_max_length=positions,
    )
