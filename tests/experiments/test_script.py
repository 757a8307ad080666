"""Exported scripts do what the engine does: run, and their losses and texts held against its."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AttentionMaskInterface

from explorer.cli import _parser
from explorer.cli_config import config_from
from explorer.config import RunConfig
from explorer.engine.device import environment
from explorer.engine.session import Session
from explorer.experiments.script import command_line, script
from explorer.optimizations import registry
from explorer.optimizations.base import Optimization
from explorer.results.environment import DeviceInfo

STEPS = 4
NOT_YET = {("decoder", "triton")}
"""Refused with a reason."""
ASSETS = Path(__file__).parents[2] / "assets"
LEVELS = [pytest.param(o, level, id=f"{o.name}-{level}") for o in registry.OPTIMIZATIONS for level in o.level_ids()]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> DeviceInfo:
    return environment().device(request.param)


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model beside its tokenizer, and a text."""
    folder = tmp_path_factory.mktemp("script") / "tiny"
    shutil.copytree(tiny_model, folder)
    shutil.copy(ASSETS / "tokenizer.json", folder)
    (folder / "text.txt").write_text("".join(f"def g{n}(x):\n    return x * {n}\n\n" for n in range(500)))
    return folder


@pytest.fixture(autouse=True)
def flags() -> Iterator[None]:
    """A script is a process of its own, and sets what it likes."""
    before = torch.backends.cuda.matmul.fp32_precision
    masks = dict(AttentionMaskInterface._global_mapping)
    yield
    torch.backends.cuda.matmul.fp32_precision = before
    AttentionMaskInterface._global_mapping.clear()
    AttentionMaskInterface._global_mapping.update(masks)


def asked(folder: Path, optimization: Optimization, level: str, **fields: object) -> RunConfig:
    """``level`` and what it needs; on the CPU unless told otherwise."""
    config = RunConfig(model=str(folder), weights="pretrained", device="cpu", text=str(folder / "text.txt"), seed=3)
    config = dataclasses.replace(config, batch=2, seq=24, lr=1e-2)
    config = dataclasses.replace(config, **fields)  # type: ignore[arg-type]
    config = registry.with_level(config, optimization.name, level)
    for need in optimization.needs:
        if need.applies(level, registry.levels_of(config)) and config.workload in need.workloads:
            config = registry.with_level(config, need.other, need.allowed[-1])
    return config


def ran(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    """What the script of ``config`` prints."""
    path = tmp_path / "exported.py"
    path.write_text(script(config))
    monkeypatch.setattr(sys, "argv", [str(path), *options])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def opened(config: RunConfig, device: DeviceInfo) -> Session:
    session = Session(config, device, download=False, report=lambda *_: None, cancelled=lambda: False)
    session.begin_segment(0)
    return session


def skip_what_cannot_run(optimization: Optimization, config: RunConfig, device: DeviceInfo) -> None:
    if config.workload not in optimization.workloads:
        pytest.skip(f"plays no part in {config.workload}")
    if not NOT_YET.isdisjoint(config.levels):
        pytest.skip("no script can do this yet")
    found = registry.problems(config, device)
    if found:
        pytest.skip(f"cannot run on this machine: {found}")


@pytest.mark.parametrize(("optimization", "level"), LEVELS)
def test_that_a_training_script_has_the_losses_of_the_engine(
    optimization: Optimization,
    level: str,
    folder: Path,
    device: DeviceInfo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = asked(folder, optimization, level, device=device.id)
    skip_what_cannot_run(optimization, config, device)
    assert_same_losses(config, device, tmp_path, monkeypatch)


MASKLESS = [
    {"attention": "sdpa", "compile": "blocks", "cuda_graph": "on"},
    {"attention": "flash", "compile": "model", "precision": "bf16"},
    {"attention": "flash", "cuda_graph": "on", "precision": "bf16"},
]
"""transformers would make a mask for them: blocks would be compiled within a recording, and flash takes none."""


@pytest.mark.gpu
@pytest.mark.parametrize(
    "levels",
    [*MASKLESS, {"attention": "naive_half", "compile": "blocks", "cuda_graph": "on", "precision": "bf16"}],
    ids=str,
)
def test_that_the_masks_of_a_script_can_be_compiled_and_recorded(
    levels: dict[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = environment().device("cuda:0")
    config = asked(folder, registry.by_name("dropout"), "off", device=device.id)
    for name, level in levels.items():
        config = registry.with_level(config, name, level)
    assert not registry.problems(config, device)
    assert_same_losses(config, device, tmp_path, monkeypatch)


MASK = 'AttentionMaskInterface.register("sdpa", lambda **_: None)'


def test_that_scripts_leave_out_the_mask_only_where_transformers_would_make_one() -> None:
    for levels in MASKLESS:
        assert MASK in script(RunConfig(levels=tuple(levels.items())))
    for levels in ({"attention": "sdpa"}, {"attention": "sdpa", "compile": "model", "cuda_graph": "on"}):
        assert MASK not in script(RunConfig(levels=tuple(levels.items())))


def assert_same_losses(config: RunConfig, device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = ran(config, tmp_path, monkeypatch, "--steps", str(STEPS))
    losses = [float(found) for found in re.findall(r"loss (\S+)", printed)]
    with opened(config, device) as session:
        for _ in range(STEPS):
            session.loop.step()
        expected = [sample.loss for sample in session.loop.collect(all_of_them=True)]
    assert len(set(expected)) == STEPS
    # The same weights, batches, dropout and arithmetic; on CUDA sums may come in another order from run to run.
    assert losses == pytest.approx(expected, abs=1e-6 if device.kind == "cpu" else 1e-2)


@pytest.mark.parametrize(("optimization", "level"), LEVELS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_that_a_generation_script_writes_what_the_engine_writes(
    optimization: Optimization,
    level: str,
    temperature: float,
    folder: Path,
    device: DeviceInfo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = asked(
        folder, optimization, level, device=device.id, workload="generate", temperature=temperature, top_p=0.95
    )
    skip_what_cannot_run(optimization, config, device)
    config = dataclasses.replace(config, prompt="import os", max_new_tokens=12)
    printed = ran(config, tmp_path, monkeypatch)
    with opened(config, device) as session:
        while not session.loop.finished:
            session.loop.step()
        session.loop.collect(all_of_them=True)
        text = session.loop.take_text() + session.loop.end_text()
    assert len(text) > 12
    assert printed == f"import os{text}\n"


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_that_a_script_penalises_what_was_seen_and_ends_at_a_stop_string(
    temperature: float, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(workload="generate", model=str(folder), weights="pretrained", device="cpu", batch=2, seed=3)
    config = dataclasses.replace(config, prompt="import os", max_new_tokens=40, temperature=temperature)
    config = dataclasses.replace(config, repetition_penalty=1.3)
    (device,) = (d for d in environment().devices if d.id == "cpu")

    def written(config: RunConfig) -> str:
        with opened(config, device) as session:
            while not session.loop.finished:
                session.loop.step()
                session.loop.collect()
            session.loop.collect(all_of_them=True)
            return session.loop.end_text()

    whole = written(config)
    at = next(at for at in range(30, len(whole)) if whole.index(whole[at : at + 3]) == at)
    config = dataclasses.replace(config, stop=("never", whole[at : at + 3]))
    expected = written(config)
    assert expected == whole[:at]
    assert ran(config, tmp_path, monkeypatch) == f"import os{expected}\n"
    words = shlex.split(command_line(config))
    assert config_from(_parser().parse_args(words)) == config


def test_that_every_level_can_be_exported_for_each_of_its_workloads(folder: Path) -> None:
    for optimization in registry.OPTIMIZATIONS:
        for level, workload in ((level, w) for level in optimization.level_ids() for w in optimization.workloads):
            if (optimization.name, level) in NOT_YET:
                continue
            source = script(asked(Path("/models/mine"), optimization, level, workload=workload))
            ast.parse(source)
            assert max(map(len, source.splitlines())) <= 120, source


def test_that_a_script_with_many_toggles_keeps_to_its_width_and_indents_its_command() -> None:
    levels = {"attention": "causal", "gelu": "torch", "loss_impl": "chunked", "optimizer": "fused", "dropout": "off"}
    levels |= {"vocab_padding": "128", "precision": "fp16", "checkpointing": "all", "grad_accumulation": "4"}
    source = script(RunConfig(levels=tuple(levels.items())))
    ast.parse(source)
    assert max(map(len, source.splitlines())) <= 120
    assert "\n\n    python main.py run" in source


def test_that_the_header_names_the_command_that_does_the_same(folder: Path) -> None:
    config = asked(folder, registry.by_name("gelu"), "torch", prompt='it\'s "so"\n\\')
    words = shlex.split(command_line(config))
    assert config_from(_parser().parse_args(words)) == config
    assert "--set gelu=torch" in script(config)


def test_that_a_script_for_a_named_model_draws_its_weights_and_reads_pythons_text() -> None:
    source = script(RunConfig(model="gpt2", batch=8))
    assert "vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12" in source
    assert "pydoc_data" in source
    assert 'from_pretrained("openai-community/gpt2"' in script(RunConfig(model="gpt2", weights="pretrained"))
