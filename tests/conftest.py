"""What several areas of the tests share."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import interpreted
import pytest
from forked import forks_for_spawns

from explorer.results import statistics

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test needs a network


_FOLDER = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Without the GPU tests, let Triton kernels run as numpy on the CPU.

    Triton decides when it is imported, so it is decided once for the process, here, before transformers or a test
    imports it. Nothing else that runs on the CPU uses Triton. With the GPU tests kernels must be compiled, and
    the CPU's kernel tests are skipped.
    """
    assert "triton" not in sys.modules
    gc.disable()  # until all is imported, see below
    # Never the user's own file of runs: not here, and not in the programs that tests start.
    os.environ["GPT2_EXPLORER_STORE"] = str(Path(config.stash.setdefault(_FOLDER, tempfile.mkdtemp())) / "runs.sqlite")
    if config.option.markexpr == "not gpu":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        # Fixtures turn deterministic algorithms on; cuBLAS then asks for this, before its first call.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Neighbours on the same GPU are in what a test sees of its time and of all its memory."""
    if getattr(config, "workerinput", {}).get("workercount", 1) == 1:
        return
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker(pytest.mark.skip(reason="needs the GPU to itself: pytest -m alone, without -n"))


def pytest_collection_finish() -> None:
    """Keep what the imports made out of all later collections.

    Half a million objects of torch and transformers, which each full collection would go through, and each run of the
    engine ends with one: a tenth of the time of all tests together.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    interpreted.remember_builtins()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """And what torch's compiler and others have imported, or kept, by the end of a file of tests."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_FOLDER])


@pytest.fixture(scope="session", autouse=True)
def torch_is_imported_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """For all processes that the tests' own code spawns. Programs that a test starts as a user would, spawn theirs.

    With the GPU tests they all do: no process can be forked from one that has asked for CUDA.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not gpu":
            patch.setattr(multiprocessing, "get_context", forks_for_spawns())
        yield


@pytest.fixture
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up of ten steps at most, for tests of what comes after it."""
    monkeypatch.setattr(statistics, "WARMUP_LIMIT_STEPS", 10)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder saved by transformers: GPT-2 with two layers, the bundled tokenizer's vocabulary and random weights."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from explorer.engine.tokenizer import bundled

    folder = tmp_path_factory.mktemp("models") / "tiny"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        config = GPT2Config(
            n_layer=2,
            n_head=2,
            n_embd=32,
            n_positions=64,
            vocab_size=bundled().vocabulary,
            bos_token_id=0,
            eos_token_id=0,
        )
        model = GPT2LMHeadModel(config)
        for parameter in model.parameters():  # no zeros: an ignored bias must show
            torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(folder)
    return folder
