"""Models from a seed and from folders: what is built, and that the caller's random state is left alone."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

import explorer
from explorer.config import RunConfig
from explorer.engine import model, tokenizer
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.mini_judgement import bits_per_byte, xz_bits_per_byte
from explorer.models import MODELS

CPU = torch.device("cpu")


def load(cancelled=lambda: False, progress=lambda *_: None, device=CPU, **settings):
    config = RunConfig(**{"model": "mini", "seq": 32, **settings})
    return model.load(config, device, download=False, progress=progress, cancelled=cancelled)


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A small GPT-2 with its tokenizer, free to be changed."""
    target = tmp_path / "model"
    shutil.copytree(tiny_model, target)
    (target / "tokenizer.json").write_text(tokenizer.bundled().to_json(), encoding="utf-8")
    return target


def logits(of):
    ids = torch.arange(40).reshape(2, 20) * 13
    with torch.no_grad():
        return of.eval()(input_ids=ids).logits


# ---- random weights


@pytest.mark.parametrize("name", ["mini", "gpt2"])
def test_that_random_weights_have_the_named_shape_and_gpt2s_distribution(name):
    loaded = load(model=name)
    shape = MODELS[name]
    assert loaded.positions == shape.positions
    assert sum(p.numel() for p in loaded.model.parameters()) == shape.parameters
    assert loaded.model.lm_head.weight is loaded.model.transformer.wte.weight
    last = loaded.model.transformer.h[-1]
    # Source of the deviations: Radford et al. 2019, section 2.3. The sample deviation of n draws errs by 1/sqrt(2n):
    # at least 65536 draws, so 0.3%, and five times that is allowed.
    residual = 0.02 / (2 * shape.layers) ** 0.5
    for weight, std in (
        (loaded.model.transformer.wte.weight, 0.02),
        (loaded.model.transformer.wpe.weight, 0.02),
        (last.attn.c_attn.weight, 0.02),
        (last.mlp.c_fc.weight, 0.02),
        (last.attn.c_proj.weight, residual),
        (last.mlp.c_proj.weight, residual),
    ):
        assert weight.dtype == torch.float32
        assert weight.std().item() == pytest.approx(std, rel=0.015)
        assert abs(weight.mean().item()) < 5 * std / weight.numel() ** 0.5
    assert last.attn.c_attn.bias.abs().max() == last.ln_1.bias.abs().max() == 0
    assert (last.ln_1.weight == 1).all()
    assert (loaded.model.transformer.ln_f.weight == 1).all()


def test_that_the_seed_decides_random_weights_and_no_two_tensors_are_alike():
    first, again, other = (load(seed=seed).model.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [name for name in first if name.endswith("weight") and "ln_" not in name]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    starts = {tuple(first[name].flatten()[:4].tolist()) for name in drawn if name != "lm_head.weight"}
    assert len(starts) == len(drawn) - 1


def test_that_loading_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    load()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.gpu
def test_that_random_weights_on_cuda_are_those_of_the_cpu():
    cuda = torch.device("cuda")
    state = torch.cuda.get_rng_state()
    here, there = load(model="gpt2").model.state_dict(), load(model="gpt2", device=cuda).model.state_dict()
    assert all(there[name].is_cuda and torch.equal(here[name], there[name].cpu()) for name in here)
    assert torch.equal(state, torch.cuda.get_rng_state())


def test_that_a_model_comes_in_training_mode_with_plain_attention_and_gpt2s_dropout():
    loaded = load()
    assert loaded.model.training
    assert loaded.model.config._attn_implementation == "eager"
    assert [m.p for m in loaded.model.modules() if isinstance(m, torch.nn.Dropout)] == [0.1] * (1 + 3 * 6)
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.model.config.eos_token_id == loaded.tokenizer.end_id


def test_that_a_random_model_computes_what_transformers_own_computes():
    loaded = load()
    reference = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=8192,
            n_embd=256,
            n_layer=6,
            n_head=4,
            eos_token_id=0,
            bos_token_id=0,
            attn_implementation="eager",
        )
    )
    reference.load_state_dict(loaded.model.state_dict())
    assert torch.equal(logits(loaded.model), logits(reference))


def test_that_progress_ends_at_the_whole_and_cancel_is_heard():
    report = []
    load(progress=lambda *a: report.append(a))
    assert report[-1][1] == report[-1][2] == MODELS["mini"].parameters / 1e6
    with pytest.raises(Cancelled):
        load(cancelled=lambda: True)


# ---- folders


def test_that_random_weights_for_a_folder_take_its_shape_only(folder):
    (folder / "model.safetensors").unlink()
    loaded = load(model=str(folder))
    assert (loaded.model.config.n_layer, loaded.model.config.n_embd, loaded.positions) == (2, 32, 64)
    assert loaded.tokenizer.vocabulary == 8192


def test_that_a_saved_folder_computes_what_transformers_loads(folder):
    loaded = load(model=str(folder), weights="pretrained")
    reference = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager")
    assert loaded.model.training
    assert torch.equal(logits(loaded.model), logits(reference))
    assert loaded.name == str(folder)


def test_that_published_names_and_masks_are_understood(folder):
    # As in openai-community/gpt2: no prefix, and causal masks saved as if they were weights.
    tensors = load_file(folder / "model.safetensors")
    expected = logits(load(model=str(folder), weights="pretrained").model)
    published = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    published |= {f"h.{n}.attn.bias": torch.ones(64, 64).tril()[None, None] for n in range(2)}
    published |= {f"h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(2)}
    save_file(published, folder / "model.safetensors")
    assert torch.equal(logits(load(model=str(folder), weights="pretrained").model), expected)


def test_that_shards_are_read_through_their_index(folder):
    expected = logits(load(model=str(folder), weights="pretrained").model)
    saved = GPT2LMHeadModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    saved.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert torch.equal(logits(load(model=str(folder), weights="pretrained").model), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_that_half_precision_files_are_loaded_as_float32(folder, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    loaded = load(model=str(folder), weights="pretrained").model
    name = "transformer.h.1.mlp.c_fc.weight"
    assert torch.equal(loaded.state_dict()[name], tensors[name].float())


def test_that_a_loaded_model_no_longer_depends_on_its_file(folder):
    loaded = load(model=str(folder), weights="pretrained").model
    before = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    size = (folder / "model.safetensors").stat().st_size
    with (folder / "model.safetensors").open("r+b") as file:
        file.write(b"\x55" * size)
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.state_dict().items())


# ---- what does not fit


def test_that_an_unknown_model_is_refused_with_those_there_are():
    with pytest.raises(BadRequest, match=r"no model.*gpt2-xl, or a folder"):
        load(model="gpt9")


def test_that_the_bundled_weights_are_those_of_the_manifest_and_know_python():
    assets = Path(explorer.__file__).parent.parent / "assets"
    manifest = json.loads((assets / "mini.json").read_text())
    assert (
        hashlib.sha256((assets / "mini.safetensors").read_bytes()).hexdigest()
        == (manifest["sha256"]["mini.safetensors"])
    )
    assert (assets / "mini.safetensors").stat().st_size <= 16_000_000
    loaded = load(weights="bundled")
    # A text that is younger than the model: xz, which has learned nothing before, takes it for a good measure.
    source = (Path(explorer.__file__).parent / "config.py").read_bytes()
    tokens = np.array(loaded.tokenizer.encode(source.decode()), dtype=np.uint16)
    bits = bits_per_byte(loaded.model, tokens, len(source), CPU)
    assert bits < 0.8 * xz_bits_per_byte(source)


def test_that_only_mini_has_bundled_weights():
    with pytest.raises(BadRequest, match="only mini"):
        load(model="gpt2", weights="bundled")


def test_that_a_sequence_longer_than_the_model_is_refused_for_training_alone(folder):
    with pytest.raises(BadRequest, match="only 64 positions"):
        load(model=str(folder), seq=65)
    assert load(model=str(folder), seq=65, workload="generate").positions == 64


def test_that_a_tokenizer_larger_than_the_model_is_refused(folder):
    values = json.loads((folder / "config.json").read_text())
    values["vocab_size"] = 8000
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(BadRequest, match=r"8192 tokens.*8000"):
        load(model=str(folder))


def test_that_a_folder_without_tokenizer_is_refused_for_its_weights(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadRequest, match=r"no tokenizer\.json"):
        load(model=str(folder), weights="pretrained")
