"""Model folders that are wrong or hostile are refused, naming the file, what is wrong and what to do."""

import json
import pickle
import shutil
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from explorer.config import RunConfig
from explorer.engine import model, tokenizer
from explorer.engine.errors import BadRequest


@pytest.fixture
def folder(tiny_model, tmp_path):
    target = tmp_path / "model"
    shutil.copytree(tiny_model, target)
    (target / "tokenizer.json").write_text(tokenizer.bundled().to_json(), encoding="utf-8")
    return target


def refusal(folder):
    """What loading the folder's weights is refused with; it must name a remedy."""
    config = RunConfig(model=str(folder), weights="pretrained", seq=32)
    with pytest.raises(BadRequest) as caught:
        model.load(config, torch.device("cpu"), download=False, progress=lambda *_: None, cancelled=lambda: False)
    assert caught.value.remedy
    return caught.value


CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


def set_config(folder, **values):
    content = json.loads((folder / CONFIG).read_text())
    content.update(values)
    (folder / CONFIG).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "no JSON object"),
        (b" " * 2_000_000 + b"{}", "larger than"),
    ],
    ids=["missing", "cut", "binary", "nested", "list", "huge"],
)
def test_that_a_config_that_is_no_json_object_is_refused(folder, content, why):
    (folder / CONFIG).unlink()
    if content is not None:
        (folder / CONFIG).write_bytes(content)
    error = refusal(folder)
    assert CONFIG in error.what
    assert why in error.why


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model_type": "llama"}, "'llama'"),
        ({"model_type": None}, "model_type is None"),
        ({"n_layer": 10**9}, "n_layer is 1000000000"),
        ({"n_layer": 2.0}, "n_layer is 2.0"),
        ({"n_head": True}, "n_head is True"),
        ({"n_head": 3}, "not a multiple of n_head 3"),
        ({"vocab_size": "8192"}, "vocab_size is '8192'"),
        ({"n_positions": None}, "n_positions is None"),
        ({"n_layer": 1000, "n_embd": 65536}, "5.15e+13 parameters"),
        ({"resid_pdrop": 1.5}, "resid_pdrop is 1.5"),
        ({"layer_norm_epsilon": "x"}, "layer_norm_epsilon is 'x'"),
        ({"activation_function": "relu"}, "activation_function is 'relu'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"n_inner": 64}, "has shape"),
        ({"n_layer": 3}, "transformer.h.2.ln_1.weight is not there, nor are 11 others"),
        ({"n_layer": 1}, "does not belong"),
        ({"n_positions": 128}, "shape (64, 32), not (128, 32)"),
    ],
)
def test_that_a_config_that_does_not_describe_these_weights_is_refused(folder, values, why):
    set_config(folder, **values)
    error = refusal(folder)
    assert str(folder) in error.what
    assert why in error.why


def test_that_code_named_in_a_config_is_never_run(folder, tmp_path):
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    set_config(folder, auto_map={"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Evil"})
    config = RunConfig(model=str(folder), weights="pretrained", seq=32)
    model.load(config, torch.device("cpu"), download=False, progress=lambda *_: None, cancelled=lambda: False)
    assert not (tmp_path / "ran").exists()


class Evil:
    """Pickled, it creates a file when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_that_a_pickle_is_refused_unopened(folder, tmp_path):
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(str(tmp_path / "ran"))))
    error = refusal(folder)
    assert "pickle (pytorch_model.bin)" in error.why
    assert not (tmp_path / "ran").exists()


def test_that_a_pickle_under_a_safetensors_name_is_refused_unopened(folder, tmp_path):
    (folder / WEIGHTS).write_bytes(pickle.dumps(Evil(str(tmp_path / "ran"))) + b"." * 1000)
    assert "no whole safetensors file" in refusal(folder).why
    assert not (tmp_path / "ran").exists()


def test_that_a_folder_without_weights_is_refused(folder):
    (folder / WEIGHTS).unlink()
    assert "no model.safetensors" in refusal(folder).why


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-100],
        lambda content: content[:50],
        lambda content: b"",
        lambda content: struct.pack("<Q", 2**60) + content[8:],
        lambda content: struct.pack("<Q", 90_000_000) + content[8:],
        lambda content: content[:8] + b"x" + content[9:],
        lambda content: content + b"more",
    ],
    ids=["cut", "cut-header", "empty", "huge-header", "long-header", "no-json", "trailing"],
)
def test_that_a_broken_safetensors_file_is_refused(folder, spoil):
    (folder / WEIGHTS).write_bytes(spoil((folder / WEIGHTS).read_bytes()))
    error = refusal(folder)
    assert WEIGHTS in error.what
    assert "no whole safetensors file" in error.why


def _negative_infinity(tensors):
    tensors["transformer.wte.weight"][8191, 31] = -float("inf")


def _nan(tensors):
    tensors["transformer.h.1.mlp.c_proj.bias"][:3] = float("nan")


def _transposed(tensors):
    name = "transformer.h.0.mlp.c_fc.weight"
    tensors[name] = tensors[name].T.contiguous()


def _integers(tensors):
    name = "transformer.wpe.weight"
    tensors[name] = tensors[name].to(torch.int32)


def _twice(tensors):
    tensors["wte.weight"] = tensors["transformer.wte.weight"].clone()


def _untied(tensors):
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_nan, "transformer.h.1.mlp.c_proj.bias has 3 values that are NaN or infinite"),
        (_negative_infinity, "transformer.wte.weight has 1 values"),
        (_transposed, "transformer.h.0.mlp.c_fc.weight has shape (128, 32), not (32, 128)"),
        (_integers, "transformer.wpe.weight has type I32"),
        (_twice, "is there twice"),
        (_untied, "lm_head.weight differs"),
        (lambda tensors: tensors.pop("transformer.ln_f.bias"), "transformer.ln_f.bias is not there"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "extra does not belong"),
    ],
)
def test_that_wrong_tensors_are_refused_by_name(folder, spoil, why):
    tensors = load_file(folder / WEIGHTS)
    spoil(tensors)
    save_file(tensors, folder / WEIGHTS)
    error = refusal(folder)
    assert WEIGHTS in error.what
    assert why in error.why


def test_that_a_head_equal_to_the_embedding_is_accepted(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    save_file(tensors, folder / WEIGHTS)
    config = RunConfig(model=str(folder), weights="pretrained", seq=32)
    loaded = model.load(
        config, torch.device("cpu"), download=False, progress=lambda *_: None, cancelled=lambda: False
    ).model
    assert np.array_equal(loaded.lm_head.weight.detach(), tensors["transformer.wte.weight"])


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ("{}", "no weight_map"),
        ('{"weight_map": {"a": "../../secret.safetensors"}}', "'../../secret.safetensors'"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "'/etc/passwd'"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "no such file"),
    ],
)
def test_that_a_wrong_index_is_refused(folder, index, why):
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(index)
    assert why in refusal(folder).why
