"""Parity: what torch's own rounding allows passes, and what is wrong is found, with its place."""

from __future__ import annotations

import dataclasses
import math
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel
from wrong_toggle import FORCED_AT, FORCED_TOKEN, WrongToggle

from explorer.config import RunConfig
from explorer.engine import data, verify
from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.tokenizer import bundled
from explorer.optimizations import compiled, fused_gelu, registry
from explorer.results.environment import DeviceInfo
from explorer.results.parity import Parity

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", total_memory_bytes=0, triton_problem="no CUDA device")
STEPS = 5
ASSETS = Path(__file__).parents[2] / "assets"


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return file


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with its random biases, and a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(tiny_model, folder)
    shutil.copy(ASSETS / "tokenizer.json", folder)
    return folder


@pytest.fixture
def tiny(folder: Path, text_file: Path) -> RunConfig:
    return RunConfig(
        model=str(folder), weights="pretrained", device="cpu", text=str(text_file), batch=2, seq=32, prompt="def f("
    )


@pytest.fixture(scope="module")
def known() -> verify.Known:
    """References and yardsticks, computed once for this file."""
    return {}


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry with a harmful toggle in it."""
    monkeypatch.setattr(registry, "OPTIMIZATIONS", (*registry.OPTIMIZATIONS, WrongToggle()))


def at(config: RunConfig, **levels: str) -> RunConfig:
    for name, level in levels.items():
        config = registry.with_level(config, name, level)
    return config


def checked(config: RunConfig, known: verify.Known | None = None, steps: int = STEPS, **levels: str) -> Parity:
    return verify.parity(
        at(config, **levels), CPU, steps=steps, report=lambda *_: None, cancelled=lambda: False, known=known
    )


@pytest.mark.parametrize(
    "levels",
    [
        {},
        {"attention": "sdpa", "checkpointing": "all"},
        {"gelu": "torch"},
        {"precision": "bf16"},
        {"precision": "bf16", "attention": "naive_half"},
        {"precision": "fp16", "attention": "math", "gelu": "torch"},
    ],
    ids=lambda levels: " ".join(levels.values()) or "baseline",
)
def test_that_correct_toggles_stay_within_twice_torchs_own_error_in_training(
    tiny: RunConfig, known: verify.Known, levels: dict[str, str]
) -> None:
    parity = checked(tiny, known, **levels)
    assert parity.ok, parity.worst
    parameters = sum(1 for _ in GPT2LMHeadModel.from_pretrained(tiny.model).parameters())
    assert len(parity.of("gradient")) == len(parity.of("direction")) == parameters + 1
    assert [measure.where for measure in parity.of("block")] == ["transformer.h.0", "transformer.h.1"]
    assert len(parity.asked.losses) == len(parity.asked.grad_norms) == STEPS
    # Largest measured on the CPU: float32 4e-7 (0.04 of its bound); bf16 7e-3 and fp16 9e-4, from 0.5 to 0.8 of theirs.
    if "precision" not in levels:
        assert max(measure.value for measure in parity.measures) < 2e-6
    else:
        assert min(measure.value for measure in parity.of("logits")) > 1e-4


@pytest.mark.parametrize(
    "levels",
    [
        {},
        {"precision": "bf16"},
        {"weight_dtype": "fp16", "attention": "sdpa"},
        {"weight_dtype": "int8", "kv_cache": "static"},
        {"kv_cache": "off"},
    ],
    ids=str,
)
def test_that_correct_toggles_stay_within_twice_torchs_own_error_in_generation(
    tiny: RunConfig, known: verify.Known, levels: dict[str, str]
) -> None:
    parity = checked(dataclasses.replace(tiny, workload="generate"), known, **levels)
    assert parity.ok, parity.worst
    prompt = len(bundled().encode("def f("))
    assert parity.new_tokens == 64 - prompt  # all that the tiny model's context of 64 has room for
    assert {measure.kind for measure in parity.measures} == {"logits", "largest logit", "text", "block"}
    if not levels:
        assert parity.first_divergence is None
        assert parity.asked.text == parity.reference.text != ""
    # Largest seen: 1.1e-4 in bfloat16, 5.5e-5 in int8; float32's paths agree to the last bit.
    coarse = "precision" in levels or "weight_dtype" in levels
    assert parity.perplexity_ratio == pytest.approx(1, rel=1e-3 if coarse else 1e-6)
    assert (parity.asked.perplexity != parity.reference.perplexity) or not coarse


def test_that_the_text_is_the_likeliest_by_the_models_own_logits(tiny: RunConfig, known: verify.Known) -> None:
    config = dataclasses.replace(tiny, workload="generate")
    checked(config, known)
    numbers = known[verify.plain_float32(config), STEPS]
    prompt = bundled().encode(tiny.prompt)
    model = GPT2LMHeadModel.from_pretrained(tiny.model, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *numbers.tokens[:-1]]])).logits[0]
    assert logits[len(prompt) - 1 :].argmax(dim=-1).tolist() == list(numbers.tokens)
    # Largest difference measured: 5e-7, of logits of up to 1.4.
    torch.testing.assert_close(numbers.logits, logits[: len(prompt)], rtol=0, atol=2e-6)
    torch.testing.assert_close(numbers.text_logits, logits[len(prompt) - 1 :], rtol=0, atol=2e-6)


def test_that_errors_and_cosines_are_those_of_the_gradients_by_definition(tiny: RunConfig) -> None:
    parity = checked(dataclasses.replace(tiny, grad_clip=0.25), precision="bf16", attention="sdpa")
    tokens = data.token_stream(tiny, bundled(), download=False, progress=lambda *_: None, cancelled=lambda: False)
    with data.Batches(tokens, batch=2, seq=32, seed=0, device=torch.device("cpu")) as batches:
        ids, _ = batches.next()
    results = []
    for attention, half in (("eager", False), ("sdpa", True)):
        model = GPT2LMHeadModel.from_pretrained(tiny.model, attn_implementation=attention).eval()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            logits = model(ids).logits
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        grads = {name: p.grad.double().flatten() for name, p in model.named_parameters()}
        results.append((loss.item(), logits[0].detach().double(), grads))
    (exact_loss, exact_logits, exact), (loss, logits, grads) = results
    # Both clip their gradients of norm 0.6 to 0.25: what is compared must be the gradients before that.
    assert parity.reference.grad_norms[0] == pytest.approx(torch.cat(list(exact.values())).norm().item(), rel=1e-4)
    assert min(parity.reference.grad_norms[0], parity.asked.grad_norms[0]) > 0.5
    assert parity.reference.losses[0] == pytest.approx(exact_loss, rel=1e-6)
    assert parity.asked.losses[0] == pytest.approx(loss, rel=1e-6)
    assert parity.logits_max_abs == pytest.approx((logits - exact_logits).abs().max().item(), rel=1e-3)
    (measure,) = parity.of("logits")
    assert measure.value == pytest.approx(((logits - exact_logits).norm() / exact_logits.norm()).item(), rel=1e-3)
    errors = {measure.where: measure.value for measure in parity.of("gradient")}
    angles = {measure.where: measure.value for measure in parity.of("direction")}
    exact[""], grads[""] = (torch.cat(list(vectors.values())) for vectors in (exact, grads))
    assert errors.keys() == exact.keys()
    for name, vector in exact.items():
        error = ((grads[name] - vector).norm() / vector.norm()).item()
        cosine = torch.nn.functional.cosine_similarity(grads[name], vector, dim=0).item()
        assert errors[name] == pytest.approx(error, rel=1e-2)
        assert 1 - math.cos(angles[name]) == pytest.approx(1 - cosine, rel=2e-2)


def test_that_in_float32_torchs_own_path_does_not_excuse_its_own_error(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Larger(torch.nn.GELU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 1.01

    monkeypatch.setattr(fused_gelu, "_module", lambda *_: Larger(approximate="tanh"))
    for attention in ("naive", "sdpa"):  # beside the yardstick, and as the yardstick itself
        parity = checked(tiny, gelu="torch", attention=attention)
        assert not parity.ok
        assert parity.worst.endswith("the forward pass is off from transformer.h.0 on")


@pytest.fixture
def trained(text_file: Path) -> RunConfig:
    """The bundled model. Its attention's gradients cancel, so that float32 itself is off by 1e-4 and more."""
    return RunConfig(model="mini", weights="bundled", device="cpu", text=str(text_file), batch=1, seq=64)


def test_that_torchs_own_float32_path_is_within_tolerance_on_a_trained_model(
    trained: RunConfig, known: verify.Known
) -> None:
    for levels in ({"attention": "sdpa"}, {"attention": "sdpa", "gelu": "torch"}):
        parity = checked(trained, known, steps=1, **levels)
        assert parity.ok, parity.worst
        assert max(measure.value for measure in parity.of("gradient")) > 3e-5


def _tf32(x: torch.Tensor) -> torch.Tensor:
    """``x`` rounded to TF32's ten bits of mantissa."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("model", ["tiny", "trained"])
@pytest.mark.parametrize("attention", ["naive", "sdpa"], ids=["beside the yardstick", "as the yardstick itself"])
def test_that_products_that_round_as_tf32_does_are_found_in_float32(
    model: str, attention: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, known: verify.Known
) -> None:
    class Rounding(torch.nn.GELU):
        """What c_proj multiplies, in TF32; the same gradient."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            exact = super().forward(x)
            return exact + (_tf32(exact.detach()) - exact.detach())

    config: RunConfig = request.getfixturevalue(model)
    before = {key: numbers for key, numbers in known.items() if not key[0].levels or key[1] == "exact"}
    monkeypatch.setattr(fused_gelu, "_module", lambda *_: Rounding(approximate="tanh"))
    parity = checked(config, before, steps=1, gelu="torch", attention=attention)
    assert not parity.ok
    assert "the forward pass is off from transformer.h.0 on" in parity.worst


def test_that_the_exact_numbers_are_those_of_float64(tiny: RunConfig) -> None:
    known: verify.Known = {}
    checked(tiny, known, attention="sdpa")
    exact = known[verify.plain_float32(tiny), "exact"]
    tokens = data.token_stream(tiny, bundled(), download=False, progress=lambda *_: None, cancelled=lambda: False)
    with data.Batches(tokens, batch=2, seq=32, seed=0, device=torch.device("cpu")) as batches:
        ids, _ = batches.next()
    model = GPT2LMHeadModel.from_pretrained(tiny.model, attn_implementation="eager").double().eval()
    logits = model(ids).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    torch.testing.assert_close(exact.logits, logits[0].detach(), rtol=0, atol=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(exact.gradients[name], parameter.grad, rtol=1e-9, atol=1e-14)


def test_that_the_losses_may_part_by_the_gradients_error_of_their_descent(tiny: RunConfig) -> None:
    parity = checked(dataclasses.replace(tiny, lr=1e-2), precision="bf16")
    losses = parity.reference.losses
    descent = (losses[0] - losses[-1]) / losses[0]
    assert descent > 0.05
    (loss,) = parity.of("loss")
    gradient = next(measure.yardstick for measure in parity.of("gradient") if not measure.where)
    assert gradient * descent > loss.yardstick
    assert loss.allowed == pytest.approx(2 * gradient * descent + 1e-5)


@pytest.mark.usefixtures("wrong")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_that_attention_that_sees_the_future_is_found(tiny: RunConfig, known: verify.Known, precision: str) -> None:
    parity = checked(tiny, known, wrong="not_causal", precision=precision)
    assert not parity.ok
    assert parity.worst.endswith("the forward pass is off from transformer.h.0 on")
    (logits,) = parity.of("logits")
    assert logits.value > 0.05


@pytest.mark.usefixtures("wrong")
def test_that_a_block_whose_gelu_is_one_percent_off_is_named(tiny: RunConfig, known: verify.Known) -> None:
    parity = checked(tiny, known, wrong="gelu_in_block_1", attention="sdpa")
    assert not parity.ok
    assert parity.worst.endswith("the forward pass is off from transformer.h.1 on")
    assert [measure.ok for measure in parity.of("block")] == [True, False]


@pytest.mark.usefixtures("wrong")
def test_that_a_gradient_that_alone_is_one_percent_off_is_named(tiny: RunConfig, known: verify.Known) -> None:
    parity = checked(tiny, known, wrong="backward_of_block_0")
    assert not parity.ok
    assert parity.worst.startswith("gradient of transformer.h.0.mlp.c_fc.weight: off by 0.01, ")
    name = "transformer.h.0.mlp.c_fc.weight"
    outside = {(measure.kind, measure.where) for measure in parity.measures if not measure.ok}
    # The parameter itself is off in length alone, and so are all together, and those in direction, too.
    assert outside == {("gradient", name), ("gradient", ""), ("direction", "")}


@pytest.mark.usefixtures("wrong")
def test_that_an_update_that_alone_is_one_percent_off_shows_in_the_losses(tiny: RunConfig, known: verify.Known) -> None:
    parity = checked(dataclasses.replace(tiny, lr=1e-3), known, wrong="slower_learning")
    assert [measure.kind for measure in parity.measures if not measure.ok] == ["loss"]
    assert parity.worst.startswith("loss over the steps: off by ")


@pytest.mark.usefixtures("wrong")
def test_that_nan_in_a_weight_stops_the_arm_and_is_named(tiny: RunConfig, known: verify.Known) -> None:
    parity = checked(tiny, known, wrong="nan_weight")
    assert not parity.ok
    assert parity.worst == (
        "stopped at step 0: the loss is nan: the weights are not finite, first in transformer.h.1.attn.c_proj.weight"
    )
    assert parity.asked.losses == ()
    assert len(parity.reference.losses) == STEPS
    assert parity.logits_max_abs == math.inf
    assert {measure.value for measure in (*parity.of("logits"), *parity.of("largest logit"))} == {math.inf}
    assert [math.isfinite(measure.value) for measure in parity.of("block")] == [True, False]
    written = checked(dataclasses.replace(tiny, workload="generate"), known, wrong="nan_weight")
    assert written.worst.startswith(
        "stopped at step 0: the logits are not finite: the weights are not finite, first in "
    )


@pytest.mark.usefixtures("wrong")
def test_that_an_exploding_step_stops_the_arm_at_the_loss_that_is_not_finite(
    tiny: RunConfig, known: verify.Known
) -> None:
    parity = checked(tiny, known, wrong="exploding")
    assert parity.asked.breakdown is not None
    assert parity.asked.breakdown.step == len(parity.asked.losses) == 1
    assert "leaves the range of float32" in parity.worst
    assert not parity.ok


@pytest.mark.usefixtures("wrong")
@pytest.mark.parametrize(("precision", "end"), [("fp32", "8.926"), ("fp16", "8.926 and a loss scale of 9.53674e-07")])
def test_that_a_gradient_that_is_infinite_at_any_scale_stops_the_arm(
    tiny: RunConfig, known: verify.Known, precision: str, end: str
) -> None:
    parity = checked(tiny, known, wrong="infinite_gradient", precision=precision)
    assert not parity.ok
    assert parity.worst.startswith("stopped at step 0: the gradient's norm is ")
    assert parity.worst.endswith(f", at a loss of {end}")


def test_that_steps_that_fp16_skips_are_done_again_and_listed(tiny: RunConfig, known: verify.Known) -> None:
    parity = checked(dataclasses.replace(tiny, init_scale=2.0**30), known, precision="fp16")
    assert len(parity.asked.skipped) > 5
    assert set(parity.asked.skipped) == {0}
    assert parity.asked.loss_scales[0] == 2.0 ** (30 - len(parity.asked.skipped))
    assert all(after <= before for before, after in pairwise(parity.asked.loss_scales))
    assert parity.ok, parity.worst  # a step that was skipped for good would leave the losses one update behind


def test_that_weights_that_break_float32_itself_leave_nothing_to_compare_with(tiny: RunConfig, tmp_path: Path) -> None:
    model = GPT2LMHeadModel.from_pretrained(tiny.model)
    model.transformer.ln_f.weight.data[:] = 3e38
    model.save_pretrained(tmp_path)
    shutil.copy(ASSETS / "tokenizer.json", tmp_path)
    parity = checked(dataclasses.replace(tiny, model=str(tmp_path)))
    assert not parity.ok
    assert parity.worst.startswith("nothing to compare with: float32 itself stopped at step 0: the loss is ")
    assert "the output of transformer.ln_f leaves the range of float32" in parity.worst
    assert parity.reference.breakdown == parity.asked.breakdown


@pytest.mark.usefixtures("wrong")
def test_that_the_first_token_that_differs_is_found_and_not_judged(tiny: RunConfig, known: verify.Known) -> None:
    config = dataclasses.replace(tiny, workload="generate")
    parity = checked(config, known, wrong="forced_token")
    assert parity.first_divergence == FORCED_AT
    tokens = known[verify.plain_float32(config), STEPS].tokens
    assert tokens[FORCED_AT] != FORCED_TOKEN
    before = bundled().decode(tokens[:FORCED_AT])
    assert parity.reference.text.startswith(before)
    assert parity.asked.text.startswith(bundled().decode([*tokens[:FORCED_AT], FORCED_TOKEN]))
    assert parity.ok, parity.worst


@pytest.mark.usefixtures("wrong")
def test_that_without_enough_memory_a_smaller_batch_is_checked(tiny: RunConfig) -> None:
    parity = checked(dataclasses.replace(tiny, batch=3), wrong="full_memory")
    assert parity.batch == 1
    assert parity.ok, parity.worst
    assert parity.asked.losses == parity.reference.losses


def test_that_dropout_is_off_whatever_is_asked_for(tiny: RunConfig, known: verify.Known) -> None:
    assert registry.levels_of(tiny)["dropout"] == "gpt2"
    parity = checked(tiny, known)
    assert parity.asked.losses == parity.reference.losses


def test_that_the_reference_is_computed_once_for_configurations_checked_in_turn(tiny: RunConfig) -> None:
    said: list[str] = []
    known: verify.Known = {}

    def check_one(**levels: str) -> set[str]:
        said.clear()
        verify.parity(
            at(tiny, **levels),
            CPU,
            steps=1,
            report=lambda activity, *_: said.append(activity),
            cancelled=lambda: False,
            known=known,
        )
        return {activity.split(":")[0] for activity in said}

    everything = {"parity, float32", "parity, torch's own path", "parity, as asked"}
    assert check_one(precision="bf16") == everything
    assert check_one(precision="bf16", attention="naive_half") == {"parity, as asked"}
    assert check_one(precision="fp16", attention="sdpa", gelu="torch") == {"parity, torch's own path"}


@pytest.mark.usefixtures("wrong")
def test_that_a_model_compiled_as_a_whole_is_checked_as_it_runs(
    tiny: RunConfig, known: verify.Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(registry.by_name("compile"), "unavailable", lambda level, device: None)
    parity = checked(tiny, known, steps=2, compile="model")
    assert parity.ok, parity.worst
    assert len(parity.asked.losses) == 2
    broken = checked(tiny, known, steps=2, compile="model", wrong="exploding")
    assert broken.worst.startswith("stopped at step 1: the loss is nan, in a step that cannot be looked into")


def test_that_what_cannot_run_is_refused_before_anything_is_computed(tiny: RunConfig) -> None:
    said: list[str] = []
    with pytest.raises(BadRequest, match="flash"):
        verify.parity(
            at(tiny, attention="flash", precision="bf16"),
            CPU,
            report=lambda activity, *_: said.append(activity),
            cancelled=lambda: False,
        )
    assert said == []


@pytest.mark.parametrize("workload", ["train", "generate"])
def test_that_it_can_be_cancelled_between_steps(tiny: RunConfig, workload: str) -> None:
    seen: list[float | None] = []

    def report(activity: str, done: float | None, total: float | None, unit: str) -> None:
        if unit in ("steps", "tokens"):
            seen.append(done)

    with pytest.raises(Cancelled):
        verify.parity(
            dataclasses.replace(tiny, workload=workload), CPU, report=report, cancelled=lambda: len(seen) >= 2
        )
    assert seen == [1, 2]


def cases() -> list[tuple[str, str, str]]:
    return [(w, o.name, level.id) for o in registry.OPTIMIZATIONS for level in o.levels[1:] for w in o.workloads]


@pytest.mark.gpu
@pytest.mark.parametrize(("workload", "name", "level"), cases())
def test_that_every_level_is_within_twice_torchs_own_error_on_the_gpu(
    text_file: Path, known: verify.Known, workload: str, name: str, level: str
) -> None:
    from explorer.engine.device import environment

    device = environment().devices[0]
    config = RunConfig(
        workload=workload,  # type: ignore[arg-type]
        model="mini",
        device=device.id,
        text=str(text_file),
        batch=2,
        seq=256,
        prompt="def f(",
    )
    config = at(config, **{name: level})
    for need in registry.by_name(name).needs:
        if need.applies(level, registry.levels_of(config)) and workload in need.workloads:
            config = at(config, **{need.other: need.allowed[-1]})
    problems = registry.problems(config, device)
    if problems:
        pytest.skip(str(problems))
    parity = verify.parity(config, device, steps=STEPS, report=lambda *_: None, cancelled=lambda: False, known=known)
    if (name, level) != ("linear", "fp8"):
        assert parity.ok, parity.worst
        return
    # Three bits after the first one where the yardstick has bfloat16's seven: outside by nature, and said to be. On an
    # H200 the logits were off by 7.3e-2 and the furthest direction by 7.6e-2 rad, 8.4 times what is allowed.
    assert not parity.ok
    assert parity.asked.breakdown is None
    whole = [measure for measure in parity.measures if not measure.where]
    assert {"logits", "gradient", "direction", "loss"} <= {measure.kind for measure in whole}
    assert max(measure.value for measure in whole) < registry.by_name(name).tolerance[level]
