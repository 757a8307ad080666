"""Reading a GPT-2 from a folder of files that may be wrong: everything is checked before it is used.

Only config.json and safetensors are read: neither can carry code. A pickle is never opened.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import GPT2Config

from explorer.engine.errors import BadRequest

SAVE_AGAIN = "Save the model again with transformers' save_pretrained, or download it again."
CONFIG_LIMIT_BYTES = 2**20
INDEX_LIMIT_BYTES = 64 * 2**20
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "model.ckpt")

# Upper bounds only keep a nonsensical file from filling the memory; the largest GPT-2 has 48 layers of 1600.
_SIZES: Mapping[str, tuple[int, int]] = {
    "n_layer": (1, 1024),
    "n_head": (1, 1024),
    "n_embd": (1, 65536),
    "vocab_size": (1, 2**24),
    "n_positions": (1, 2**20),
}
PARAMETERS_LIMIT = 20_000_000_000
_FRACTIONS = ("resid_pdrop", "embd_pdrop", "attn_pdrop")

# The toggles replace attention and activation by kernels that compute exactly this.
_PLAIN: Mapping[str, Any] = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

LM_HEAD = "lm_head.weight"
EMBEDDING = "transformer.wte.weight"
_BELONGS = "The weights and config.json must be of the same model, and the files complete."
_DTYPES = ("F64", "F32", "F16", "BF16")
_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
"""Causal masks, which older versions of transformers saved as if they were weights."""


def gpt2_config(folder: Path) -> GPT2Config:
    """The shape that ``folder``/config.json describes; what else is in the file is not used.

    Raises:
        BadRequest: the file is not there, not JSON, not of a GPT-2, or asks for what this explorer does not do.
    """
    path = folder / "config.json"
    what = f"Model file {path}"
    content = _json(path, CONFIG_LIMIT_BYTES, "The folder must be one that transformers' save_pretrained has written.")
    if content.get("model_type") != "gpt2":
        raise BadRequest(
            what, f"model_type is {content.get('model_type')!r}, not 'gpt2'", "Only GPT-2 models can be used here."
        )
    for name, plain in _PLAIN.items():
        if content.get(name, plain) != plain:
            raise BadRequest(
                what, f"{name} is {content[name]!r}", f"Only GPT-2 as published can be used here, with {plain!r}."
            )
    # Every one must be stated: transformers leaves out what equals its defaults in no version, and a
    # default taken in silence would build another model than the weights are of.
    sizes = {name: _whole(what, content, name, *bounds) for name, bounds in _SIZES.items()}
    if sizes["n_embd"] % sizes["n_head"]:
        raise BadRequest(what, f"n_embd {sizes['n_embd']} is not a multiple of n_head {sizes['n_head']}", SAVE_AGAIN)
    inner = content.get("n_inner")
    if inner is not None:
        inner = _whole(what, content, "n_inner", 1, 2**20)
    d, hidden = sizes["n_embd"], inner or 4 * sizes["n_embd"]
    parameters = (sizes["vocab_size"] + sizes["n_positions"]) * d + sizes["n_layer"] * (4 * d * d + 2 * d * hidden)
    if parameters > PARAMETERS_LIMIT:
        raise BadRequest(
            what, f"it describes {parameters:.3g} parameters", f"At most {PARAMETERS_LIMIT:.3g} are allowed."
        )
    rates = {name: _fraction(what, content, name, 0.1) for name in _FRACTIONS}
    epsilon = _fraction(what, content, "layer_norm_epsilon", 1e-5)
    fields: dict[str, Any] = {
        **sizes,
        **rates,
        "n_inner": inner,
        "layer_norm_epsilon": epsilon,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return GPT2Config(**fields)


def _json(path: Path, limit_bytes: int, remedy: str) -> dict[str, Any]:
    what = f"Model file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except FileNotFoundError:
        raise BadRequest(what, "there is no such file", remedy) from None
    except OSError as error:
        raise BadRequest(what, f"it cannot be read ({error.strerror})", remedy) from error
    if len(content) > limit_bytes:
        raise BadRequest(what, f"it is larger than {limit_bytes} bytes, more than such a file needs", SAVE_AGAIN)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRequest(what, f"it is not JSON ({error})", SAVE_AGAIN) from error
    if not isinstance(values, dict):
        raise BadRequest(what, "it holds no JSON object", SAVE_AGAIN)
    return values


def _whole(what: str, content: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = content.get(name)
    if type(value) is not int or not low <= value <= high:
        raise BadRequest(what, f"{name} is {value!r}; it must be a whole number from {low} to {high}", SAVE_AGAIN)
    return value


def _fraction(what: str, content: Mapping[str, Any], name: str, default: float) -> float:
    value = content.get(name, default)
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value < 1):
        raise BadRequest(what, f"{name} is {value!r}; it must be a number from 0 to below 1", SAVE_AGAIN)
    return float(value)


def read_weights(folder: Path, expected: Mapping[str, torch.Size]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter in ``expected`` (its name in GPT2LMHeadModel, its shape) as float32 on the host, checked.

    Names and shapes are checked before the first tensor is read; values as they come.

    Raises:
        BadRequest: a file is missing, cut short or no safetensors; a tensor is missing, unknown, of a wrong shape or
            type, or holds NaN or infinity.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        yield from read_weight_files((single,), expected)
    elif index.is_file():
        yield from read_weight_files(_shards(folder, index), expected)
    else:
        pickles = [name for name in _PICKLES if (folder / name).exists()]
        why = "it has no model.safetensors"
        if pickles:
            why = f"its weights are a pickle ({pickles[0]}), which can run code when it is opened"
        raise BadRequest(f"Model {folder}", why, "Save it with transformers' save_pretrained: it writes safetensors.")


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    weight_map = _json(index, INDEX_LIMIT_BYTES, SAVE_AGAIN).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadRequest(f"Model file {index}", "it has no weight_map", SAVE_AGAIN)
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # A name with a path in it could reach any file of the user's.
        if not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise BadRequest(
                f"Model file {index}", f"it names {name!r}, which is no safetensors file beside it", SAVE_AGAIN
            )
    return tuple(folder / name for name in names)


def read_weight_files(paths: Sequence[Path], expected: Mapping[str, torch.Size]) -> Iterator[tuple[str, torch.Tensor]]:
    """As ``read_weights``, from these safetensors files together."""
    found: dict[str, tuple[Path, str]] = {}
    for path in paths:
        for name, stored in _checked_names(path, expected):
            if name in found:
                raise BadRequest(f"Weights file {path}", f"tensor {stored} is there twice", SAVE_AGAIN)
            found[name] = (path, stored)
    missing = [name for name in expected if name not in found]
    if missing:
        more = f", nor are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise BadRequest(f"Weights file {paths[-1]}", f"tensor {missing[0]} is not there{more}", _BELONGS)
    for path in paths:
        with _opened(path) as file:
            for name in (name for name, (where, _) in found.items() if where == path and name != LM_HEAD):
                yield name, _finite(path, file, found[name][1])
    if LM_HEAD in found:
        _check_tied(found[EMBEDDING], found[LM_HEAD])


def _checked_names(path: Path, expected: Mapping[str, torch.Size]) -> Iterator[tuple[str, str]]:
    """For each parameter in the file its name in GPT2LMHeadModel and in the file; shape and type are right."""
    what = f"Weights file {path}"
    shapes = {**expected, LM_HEAD: expected[EMBEDDING]}
    with _opened(path) as file:
        for stored in file.keys():  # noqa: SIM118 (the file is no mapping)
            bare = stored.removeprefix("transformer.")
            if _MASK.fullmatch(bare):
                continue
            name = stored if stored == LM_HEAD else f"transformer.{bare}"
            if name not in shapes:
                raise BadRequest(what, f"tensor {stored} does not belong to this GPT-2", _BELONGS)
            tensor = file.get_slice(stored)
            if tuple(tensor.get_shape()) != tuple(shapes[name]):
                why = f"tensor {stored} has shape {tuple(tensor.get_shape())}, not {tuple(shapes[name])}"
                raise BadRequest(what, why, _BELONGS)
            if tensor.get_dtype() not in _DTYPES:
                why = f"tensor {stored} has type {tensor.get_dtype()}; allowed: {', '.join(_DTYPES)}"
                raise BadRequest(what, why, "Save it in one of those.")
            yield name, stored


def _finite(path: Path, file: Any, stored: str) -> torch.Tensor:
    # Copied, for what safetensors returns may be a view of the file, which can change or go.
    tensor = file.get_tensor(stored).to(torch.float32, copy=True)
    if not torch.isfinite(tensor).all():
        count = int((~torch.isfinite(tensor)).sum())
        why = f"tensor {stored} has {count} values that are NaN or infinite"
        raise BadRequest(f"Weights file {path}", why, "Its training has diverged; use an earlier checkpoint.")
    return tensor


def _check_tied(embedding: tuple[Path, str], head: tuple[Path, str]) -> None:
    with _opened(embedding[0]) as first, _opened(head[0]) as second:
        if not torch.equal(first.get_tensor(embedding[1]), second.get_tensor(head[1])):
            why = f"{LM_HEAD} differs from {embedding[1]}, but in GPT-2 they are one matrix"
            raise BadRequest(f"Weights file {head[0]}", why, "Only GPT-2 as published can be used here.")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    what = f"Weights file {path}"
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except FileNotFoundError:
        raise BadRequest(what, "there is no such file", _BELONGS) from None
    except OSError as error:
        raise BadRequest(what, f"it cannot be read ({error})", SAVE_AGAIN) from error
    except SafetensorError as error:
        raise BadRequest(what, f"it is no whole safetensors file: {error}", SAVE_AGAIN) from error
