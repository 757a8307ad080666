"""Out of memory at every place of a run: what is said, and that nothing of the run is left."""

from __future__ import annotations

import dataclasses
import gc
import sys
from pathlib import Path

import pytest
import torch
from failing import CUDA_WORDS, Failing, end_of, served
from transformers import GPT2LMHeadModel
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine import aftermath, out_of_memory
from explorer.engine.aftermath import largest_alive
from explorer.engine.isolation import ProcessWorker
from explorer.engine.problems import describe
from explorer.messages import RunEnded, Samples, Start, WorkerReady
from explorer.models import MODELS
from explorer.optimizations import registry
from explorer.optimizations.forecasting import memory_forecast
from explorer.results.environment import DeviceInfo

GIB = 2**30
GPU = DeviceInfo(
    id="cuda:0", kind="cuda", name="NVIDIA H200", total_memory_bytes=140 * GIB, capability=(9, 0), bf16=True
)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "OPTIMIZATIONS", (*registry.OPTIMIZATIONS, Failing()))


def models() -> int:
    """How many there are, collected or not: the run itself has to see to that."""
    return sum(type(thing) is GPT2LMHeadModel for thing in gc.get_objects())


@pytest.mark.parametrize("workload", ["train", "generate"])
@pytest.mark.parametrize("level", ["at_start", "forward", "backward", "third_step"])
def test_that_it_ends_the_run_in_words_and_leaves_nothing_of_it(
    failing: None, tiny: RunConfig, workload: str, level: str
) -> None:
    if (workload, level) == ("generate", "backward"):
        pytest.skip("generation has no backward pass")
    gc.collect()
    before = models()
    config = dataclasses.replace(tiny, workload=workload, max_new_tokens=5, batch=2)  # type: ignore[arg-type]
    events = served(config.with_level("failing", level), steps=6 if workload == "train" else None)
    end = end_of(events)
    assert end.problem is not None
    assert (end.outcome, end.problem.out_of_memory, end.problem.spent) == ("failed", True, False)
    assert "12.27 GiB were asked for at once, 3.19 were free" in end.problem.why
    assert "OutOfMemoryError" in end.problem.detail
    assert models() == before
    assert sum(len(e.samples) for e in events if isinstance(e, Samples)) == (2 if level == "third_step" else 0)
    assert end_of(served(tiny, steps=2)).outcome == "completed"


def test_that_after_a_change_the_part_that_grew_is_named_and_what_was_measured_stays(
    failing: None, tiny: RunConfig
) -> None:
    larger = dataclasses.replace(tiny, batch=16, seq=64).with_level("failing", "forward")
    events = served(tiny, steps=None, then=larger)
    end = end_of(events)
    assert end.problem is not None
    assert "batch 16 x 64 tokens does not fit" in end.problem.why
    assert "logits grew from " in end.problem.why
    assert sum(len(e.samples) for e in events if isinstance(e, Samples)) > 0


def test_that_on_a_gpu_what_fits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * GIB, 140 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 136 * GIB)
    config = RunConfig(batch=64, device="cuda:0")
    problem = describe(torch.OutOfMemoryError(CUDA_WORDS), config, GPU, dataclasses.replace(config, batch=32))
    assert "batch 64 x 1024 tokens does not fit. 12.27 GiB were asked for at once" in problem.why
    assert "activations grew from " in problem.why
    # 139 GiB and its own context are this process's to have.
    found = int(problem.remedy.removeprefix("The largest batch that fits is ").split(";")[0])
    needs = [
        memory_forecast(dataclasses.replace(config, batch=found + more), MODELS["gpt2"]).peak_bytes for more in (0, 1)
    ]
    assert needs[0] <= 139 * GIB < needs[1]
    toggle, size = problem.remedy.split("; with ")[1].split(" this one takes ")
    other = config.with_level(*toggle.split("="))
    assert size == f"{memory_forecast(other, MODELS['gpt2']).needed_bytes / GIB:.1f} GiB."
    assert memory_forecast(other, MODELS["gpt2"]).peak_bytes < 0.9 * memory_forecast(config, MODELS["gpt2"]).peak_bytes


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("can't allocate memory: you tried to allocate 5 bytes"), False),
    ],
)
def test_that_other_libraries_words_for_it_are_understood(error: Exception, is_one: bool) -> None:
    assert out_of_memory.is_out_of_memory(error) is is_one
    assert describe(error, RunConfig()).out_of_memory is is_one


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of another process by prlimit")
def test_that_a_machine_without_room_is_told_and_the_same_worker_runs_the_next(tiny: RunConfig) -> None:
    """The kernel itself refuses: the worker's address space is limited while it works."""
    import resource

    worker = ProcessWorker()
    talk = Talk(worker)
    try:
        talk.until(lambda e: isinstance(e, WorkerReady))
        worker.send(Start(run_id=1, config=tiny, steps=2))
        assert talk.ended(1).outcome == "completed"
        pages = int(Path(f"/proc/{worker.process_id}/statm").read_text().split()[0])
        before = resource.prlimit(worker.process_id, resource.RLIMIT_AS)
        held = pages * resource.getpagesize()
        resource.prlimit(worker.process_id, resource.RLIMIT_AS, (held + 3 * GIB // 2, before[1]))
        worker.send(Start(run_id=2, config=dataclasses.replace(tiny, batch=1024, seq=64), steps=1))
        end = talk.ended(2)
        assert isinstance(end, RunEnded)
        assert end.problem is not None
        assert end.problem.out_of_memory
        # The logits: 1024 x 64 x 8192 in float32.
        assert "2.00 GiB were asked for at once, more than this machine gives" in end.problem.why
        assert "logits take most" in end.problem.why
        worker.send(Start(run_id=3, config=tiny, steps=2))
        assert talk.ended(3).outcome == "completed"
    finally:
        worker.close()


def test_that_tensors_left_alive_are_named_by_size_with_what_holds_them() -> None:
    # No other test has tensors on torch's device without memory.
    kept = {"weights": torch.empty(512, 1024, device="meta")}
    listed = [torch.empty(256, 1024, dtype=torch.bfloat16, device="meta"), kept["weights"][:5]]
    found = largest_alive("meta")
    assert found == "float32 (512, 1024) of 2 MiB in a dict under 'weights', bfloat16 (256, 1024) of 0 MiB in a list"
    listed.clear()
    assert largest_alive("meta") == "float32 (512, 1024) of 2 MiB in a dict under 'weights'"
    assert largest_alive("xpu") == ""


def test_that_a_list_from_before_the_run_is_named_as_the_holder() -> None:
    listed: list[torch.Tensor] = []
    gc.freeze()  # as a worker does once it has imported all
    listed.append(torch.empty(512, 1024, device="meta"))
    assert largest_alive("meta") == "float32 (512, 1024) of 2 MiB in a call that has not returned"
    assert aftermath._of_all_alive("meta") == "float32 (512, 1024) of 2 MiB in a list"
