"""The recipe of the bundled model, end to end on a tiny corpus: stopped and resumed it makes the same model."""

import hashlib
import json
import random

import pytest
import torch
from safetensors.torch import load_file

from explorer.engine import mini_corpus, model, train_mini
from explorer.models import MODELS

CPU = torch.device("cpu")
WORDS = ["alpha", "beta", "gamma", "delta", "width", "height", "value", "total", "count", "first", "last", "node"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A distribution of 24 files of two functions each, the same on every Python."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "lib-1.dist-info").mkdir()
    (folder / "lib-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: lib\nVersion: 1\nLicense: MIT\n")
    draw = random.Random(0)
    names = [f"module_{number:02}.py" for number in range(24)]
    for name in names:
        functions = []
        for _ in range(2):
            lines = [f"    {' = '.join(draw.sample(WORDS, 2))} + {draw.choice(WORDS)}\n" for _ in range(10)]
            functions.append(
                f"def {'_'.join(draw.sample(WORDS, 3))}({draw.choice(WORDS)}):\n{''.join(lines)}    return total\n"
            )
        (folder / name).write_text("\n\n".join(functions))
    (folder / "lib-1.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    return folder


@pytest.fixture
def recipe(library, monkeypatch):
    """``train`` with that distribution as its corpus, 5 steps of 2 x 16 tokens, 2 short samples."""
    monkeypatch.syspath_prepend(library)
    monkeypatch.setattr(mini_corpus, "HELD_OUT_ONE_IN", 4)

    def run(out, *, minutes=10.0, steps=5, batch=2, said=None):
        lines = [] if said is None else said
        return train_mini.train(
            out,
            minutes=minutes,
            device=CPU,
            say=lines.append,
            steps=steps,
            batch=batch,
            seq=16,
            packages=("lib",),
            limit_bytes=20_000,
            samples=2,
            sampled_tokens=4,
            command="test",
        )

    return run


def test_that_the_learning_rate_rises_and_decays():
    rates = [train_mini.learning_rate(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(2e-3 / 20)
    assert max(rates) == rates[19] == pytest.approx(2e-3)
    assert rates[:20] == sorted(rates[:20])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[510] == pytest.approx((2e-3 + 1e-4) / 2, rel=0.01)
    assert rates[-1] == pytest.approx(1e-4)


def test_that_a_stopped_and_resumed_training_makes_the_same_model(recipe, tmp_path):
    straight, said = recipe(tmp_path / "straight"), []
    for _ in range(2):  # out of time after one step each
        assert recipe(tmp_path / "resumed", minutes=0.0, said=said) is None
    resumed = recipe(tmp_path / "resumed", said=said)
    assert "going on from step 2 of 5" in said
    weights = load_file(straight)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in load_file(resumed).items())
    first, second = (json.loads(path.with_suffix(".json").read_text()) for path in (straight, resumed))
    assert first["loss_curve"] == second["loss_curve"]
    assert [step for step, _ in first["loss_curve"]] == [1, 2, 3, 4, 5]
    assert first["loss_curve"][0][1] == pytest.approx(9.01, abs=0.2)  # ln 8192, untrained


def test_that_what_is_shipped_loads_as_the_bundled_model_and_the_manifest_describes_it(recipe, tmp_path, monkeypatch):
    path = recipe(tmp_path / "out")
    manifest = json.loads(path.with_suffix(".json").read_text())
    assert manifest["sha256"]["mini.safetensors"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["training"]["tokens"] == 5 * 2 * 16
    assert {origin["name"]: origin["licence"] for origin in manifest["corpus"]}["lib"] == "MIT"
    held_out = manifest["held_out"]
    assert held_out["samples"] == 2
    assert 0 < held_out["xz_bits_per_byte"] < 8
    # Five steps teach little: near 13 bits a token, a token being three to six bytes.
    assert 2 < held_out["bits_per_byte"] < 4.4
    assert len(json.loads(path.with_suffix(".samples.json").read_text())) == 2
    assert path.stat().st_size < 16_000_000
    monkeypatch.setattr(model, "files", lambda package: path.parent)
    config = model.RunConfig(model="mini", weights="bundled", seq=16)
    loaded = model.load(config, CPU, download=False, progress=lambda *_: None, cancelled=lambda: False).model
    assert sum(p.numel() for p in loaded.parameters()) == MODELS["mini"].parameters
    shipped = load_file(path)
    assert all(torch.equal(loaded.state_dict()[name], tensor.float()) for name, tensor in shipped.items())


def test_that_a_checkpoint_of_other_settings_is_refused(recipe, tmp_path):
    assert recipe(tmp_path, minutes=0.0) is None
    with pytest.raises(ValueError, match="another batch"):
        recipe(tmp_path, batch=3)
    with pytest.raises(ValueError, match="5 steps, not 6"):
        recipe(tmp_path, steps=6)


def test_that_the_number_of_steps_is_found_by_timing(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(train_mini, "TIMED_STEPS", 2)
    said = []
    assert recipe(tmp_path, minutes=1e-6, steps=None, said=said) is None
    assert any("a step: 5 steps" in line for line in said)  # four timed, and one more: there is no time left
    assert recipe(tmp_path, steps=None) is not None
