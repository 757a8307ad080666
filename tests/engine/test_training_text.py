"""A model in training writes texts, and training does not notice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from explorer.config import RunConfig
from explorer.engine import session as session_module
from explorer.engine import timing
from explorer.engine.device import environment
from explorer.engine.saving import without_toggles
from explorer.engine.session import Session
from explorer.engine.tokenizer import bundled
from explorer.results.sample import Sample

STEPS = 6


@pytest.fixture(scope="module")
def start(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(200)))
    config = RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16, lr=1e-2)
    return dataclasses.replace(config, prompt="def f", max_new_tokens=20)


def opened(config: RunConfig) -> Session:
    device = environment().device("cpu")
    session = Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False)
    session.begin_segment(0)
    return session


def trained(config: RunConfig, *, sample_after: tuple[int, ...]) -> tuple[list[Sample], list[str]]:
    samples: list[Sample] = []
    texts = []
    with opened(config) as session:
        for step in range(1, STEPS + 1):
            session.loop.step()
            if step in sample_after:
                samples += session.loop.collect(all_of_them=True)
                texts.append(session.sample_text(asked_to_stop=lambda: False))
        samples += session.loop.collect(all_of_them=True)
    return samples, texts


LEVELS = [
    pytest.param((), id="none"),
    pytest.param((("attention", "causal"), ("loss_impl", "chunked"), ("vocab_padding", "128")), id="causal, chunked"),
    pytest.param((("precision", "bf16"), ("residual", "bf16"), ("checkpointing", "all")), id="bf16, checkpointed"),
]


@pytest.mark.parametrize("levels", LEVELS)
def test_that_losses_are_the_same_with_samples_and_without(
    start: RunConfig, levels: tuple[tuple[str, str], ...]
) -> None:
    config = dataclasses.replace(start, levels=levels)  # dropout draws from the random state of the process
    without, _ = trained(config, sample_after=())
    samples, texts = trained(config, sample_after=(2, 3, 5))
    assert [(s.step, s.loss, s.grad_norm) for s in samples] == [(s.step, s.loss, s.grad_norm) for s in without]
    assert len({sample.loss for sample in without}) == STEPS
    assert len(texts) == 3
    assert all(texts)


@pytest.mark.parametrize("levels", [(), (("attention", "causal"), ("vocab_padding", "128"))])
def test_that_a_sample_is_what_transformers_writes_with_the_weights_of_that_step(
    start: RunConfig, levels: tuple[tuple[str, str], ...]
) -> None:
    with opened(dataclasses.replace(start, levels=levels, temperature=0.0)) as session:
        for _ in range(3):
            session.loop.step()
        session.loop.collect(all_of_them=True)
        written = session.sample_text(asked_to_stop=lambda: False)
        assert session.run.model.training
        copy = without_toggles(session.run.model).eval()
    prompt = torch.tensor([bundled().encode("def f")])
    expected = copy.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    assert written == bundled().decode(expected[0, prompt.shape[1] :].tolist())


def test_that_no_step_is_timed_with_a_sample_in_it(start: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    real, late_s = timing.time.perf_counter, [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: real() + late_s[0])
    write = session_module.sample_text

    def slowly(*args: object, **named: object) -> str:
        late_s[0] += 1000.0
        return write(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(session_module, "sample_text", slowly)
    samples, _ = trained(start, sample_after=(3,))
    assert max(sample.step_ms for sample in samples) < 500_000
    assert samples[3].time_s - samples[2].time_s > 900, "but it passed"
    assert samples[3].phase == "warmup", "caches are cold: not counted"
    assert [sample.step for sample in samples] == list(range(STEPS))


def test_that_stop_ends_a_sample_at_its_next_token(start: RunConfig) -> None:
    asked = iter([False, False, True])
    with opened(start) as session:
        session.loop.step()
        session.loop.collect(all_of_them=True)
        text = session.sample_text(asked_to_stop=lambda: next(asked))
        session.loop.step()
    assert len(bundled().encode(text)) <= 3 < len(bundled().encode(trained(start, sample_after=(1,))[1][0]))
