"""The recipe of the bundled model, end to end on a tiny corpus: stopped and resumed it makes the same model."""

import copy
import hashlib
import json
import random
import signal

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

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

    def run(out, *, minutes=10.0, steps=5, batch=2, said=None, asked_to_stop=lambda: False):
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
            asked_to_stop=asked_to_stop,
        )

    return run


def test_that_the_learning_rate_rises_and_decays():
    rates = [train_mini.learning_rate(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(1e-2 / 20)
    assert rates[9] == pytest.approx(1e-2 / 2)
    assert set(rates[19:401]) == {1e-2}
    assert rates[700] == pytest.approx(1e-2 / 2)
    assert rates[400:] == sorted(rates[400:], reverse=True)
    assert rates[-1] == pytest.approx(1e-2 / 600)


def test_that_a_stopped_and_resumed_training_makes_the_same_model(recipe, tmp_path):
    straight, said = recipe(tmp_path / "straight"), []
    # Out of time after one step; then asked to stop once the text is read and a step is done.
    assert recipe(tmp_path / "resumed", minutes=0.0, said=said) is None
    assert recipe(tmp_path / "resumed", said=said, asked_to_stop=lambda: said[-1].startswith("step 2/5")) is None
    resumed = recipe(tmp_path / "resumed", said=said)
    assert "going on from step 2 of 5" in said
    weights = load_file(straight)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in load_file(resumed).items())
    first, second = (json.loads(path.with_suffix(".json").read_text()) for path in (straight, resumed))
    assert first["loss_curve"] == second["loss_curve"]
    assert [step for step, _ in first["loss_curve"]] == [1, 2, 3, 4, 5]
    assert first["loss_curve"][0][1] == pytest.approx(9.01, abs=0.2)  # ln 8192, untrained


@pytest.mark.parametrize(("moment", "left"), [("corpus: ", []), ("step 2/", ["checkpoint.pt"])])
def test_that_ctrl_c_ends_it_with_a_checkpoint_or_before_there_is_one(recipe, tmp_path, monkeypatch, moment, left):
    said = []

    def say(line):
        said.append(line)
        if line.startswith(moment):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(train_mini.train.__kwdefaults__, "packages", ("lib",))
    asked = ["--out", str(tmp_path), "--steps", "400", "--batch", "1", "--seq", "8", "--limit-mb", "0.02"]
    assert train_mini.main([*asked, "--device", "cpu"], say) == 130
    assert [path.name for path in tmp_path.iterdir()] == left
    assert said[-1].startswith("stopped at step 2 of 400" if left else moment)


def test_that_what_is_shipped_loads_as_the_bundled_model_and_the_manifest_describes_it(recipe, tmp_path, monkeypatch):
    path = recipe(tmp_path / "out")
    manifest = json.loads(path.with_suffix(".json").read_text())
    assert manifest["sha256"]["mini.safetensors"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["training"]["tokens"] == 5 * 2 * 16
    assert {origin["name"]: origin["licence"] for origin in manifest["corpus"]}["lib"] == "MIT"
    held_out = manifest["held_out"]
    assert held_out["samples"] == 2
    assert 0 < held_out["xz_bits_per_byte"] < 8
    # Untrained it is 13 bits a token, three to six bytes; five steps teach little beside the few words there are.
    assert 1.5 < held_out["bits_per_byte"] < 4.4
    assert len(json.loads(path.with_suffix(".samples.json").read_text())) == 2
    assert path.stat().st_size < 16_000_000
    monkeypatch.setattr(model, "files", lambda package: path.parent)
    config = model.RunConfig(model="mini", weights="bundled", seq=16)
    loaded = model.load(config, CPU, download=False, progress=lambda *_: None, cancelled=lambda: False).model
    assert sum(p.numel() for p in loaded.parameters()) == MODELS["mini"].parameters
    shipped = load_file(path)
    assert all(torch.equal(loaded.state_dict()[name], tensor.float()) for name, tensor in shipped.items())


def test_that_muon_moves_the_blocks_matrices_and_adamw_the_rest_and_both_resume():
    def gpt2():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return GPT2LMHeadModel(
                GPT2Config(
                    n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=50, bos_token_id=None, eos_token_id=None
                )
            )

    def step(model, optimizer, seed):
        for place, parameter in enumerate(model.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * seed + place))
        optimizer.step()

    ours, theirs = gpt2(), gpt2()
    optimizer = train_mini.MuonAndAdamW(ours, CPU)
    matrices = [module.weight for block in theirs.transformer.h for module in block.modules() if hasattr(module, "nf")]
    rest = [p for p in theirs.parameters() if all(p is not matrix for matrix in matrices)]
    muon = torch.optim.Muon(matrices, lr=1e-2, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    adamw = [
        torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.05 if p.dim() == 2 else 0.0) for p in rest
    ]
    for seed in range(2):
        step(ours, optimizer, seed)
        for each in (muon, *adamw):
            step(theirs, each, seed)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)

    resumed = gpt2()
    resumed.load_state_dict(ours.state_dict())
    again = train_mini.MuonAndAdamW(resumed, CPU)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in (*again.param_groups, *optimizer.param_groups):
        group["lr"] = 3e-3
    step(ours, optimizer, 9)
    step(resumed, again, 9)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), resumed.parameters(), strict=True))


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


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--minutes", "nan"], "--minutes is nan"),
        (["--limit-mb", "0"], "--limit-mb is 0"),
        (["--steps", "0"], "--steps is 0"),
        (["--batch", "0"], "batch is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--device", "cuda:99"], "--device is 'cuda:99'; it is not here"),
        (["--device", "toaster"], "--device is 'toaster'; it is not here"),
        (["--out", "/dev/null"], "it must be a folder"),
    ],
)
def test_that_a_wrong_request_is_named_before_anything_is_read_or_written(tmp_path, wrong, words):
    out = tmp_path / "mini"
    with pytest.raises(ValueError, match=words):
        train_mini.main(["--out", str(out), *wrong], lambda line: pytest.fail(line))
    assert not out.exists()
