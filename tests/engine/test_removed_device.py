"""A GPU that is removed amid a run: NVML and CUDA as they answer then, played on the CPU."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_nvml import GPU_IS_LOST, UUID, Nvml

from explorer.config import RunConfig
from explorer.engine import kept_ceilings
from explorer.engine.live_run import LiveRun
from explorer.messages import Event, RunEnded, Samples, Start
from explorer.optimizations import registry
from explorer.optimizations.base import Level, Optimization, Run, Stage
from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo, Environment

# Source: cudaGetErrorString of cudaErrorUnknown and of cudaErrorDevicesUnavailable, which CUDA gives once NVML says
# that the GPU has fallen off the bus.
WORDS = "CUDA error: unknown error\nCUDA kernel errors might be asynchronously reported at some other API call"
CEILINGS = Ceilings(
    product_tflop_per_s=700.0, product_size=8192, product_dtype="bfloat16", copy_gb_per_s=4000.0, measured_at=""
)
PLAYED = DeviceInfo(id="cpu", kind="cuda", name="Played GPU", total_memory_bytes=2**37, uuid=UUID, capability=(9, 0))


class Removal(Optimization):
    """Takes the device away in the third step."""

    name = "removal"
    label = "Removal"
    tier = "system"
    stage = Stage.LOOP
    workloads = ("train",)
    levels = tuple(Level(id=id, label=id, help=id) for id in ("no", "third_step"))
    nvml: Nvml
    gone = False

    @contextmanager
    def applied(self, run: Run, level: str) -> Iterator[None]:
        calls = iter(range(10_000))

        def step(*_: Any) -> None:
            if next(calls) == 2:
                Removal.gone = True
                self.nvml.broken = {name: GPU_IS_LOST for name in dir(Nvml) if name.startswith("nvml")}
            answer()

        hook = run.model.transformer.h[1].register_forward_hook(step)
        try:
            yield
        finally:
            hook.remove()


def answer(*_: Any, **__: Any) -> Any:
    """Any call of CUDA's."""
    if Removal.gone:
        raise torch.AcceleratorError(WORDS)
    return 0


def test_that_a_gpu_removed_amid_a_run_ends_it_in_words_with_its_steps_and_asks_for_a_new_worker(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(500)))
    tiny = RunConfig(model=str(tiny_model), device="cpu", text=str(text), batch=2, seq=16)
    removal = Removal()
    monkeypatch.setattr(Removal, "gone", False)
    removal.nvml = nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "OPTIMIZATIONS", (*registry.OPTIMIZATIONS, removal))
    monkeypatch.setattr(kept_ceilings, "known", lambda device: CEILINGS)
    for name in ("is_available", "is_initialized"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    for name in ("synchronize", "empty_cache", "memory_allocated", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, answer)
    here = Environment(devices=(PLAYED,), platform="Linux", python="3.12", explorer="1", torch="2.13.0")
    events: list[Event] = []
    start = Start(run_id=1, config=tiny.with_level("removal", "third_step"), steps=6)
    LiveRun(start, threading.Event(), queue.SimpleQueue(), events.append, here).serve()
    end = events[-1]
    assert isinstance(end, RunEnded)
    assert end.problem is not None
    assert (end.outcome, end.problem.spent, end.problem.bad_request) == ("failed", True, False)
    assert end.problem.why.startswith("AcceleratorError: CUDA error: unknown error. Then ")
    assert "the device answers every call with an error" in end.problem.why
    assert "The next run needs a new worker." in end.problem.remedy
    samples = [s for e in events if isinstance(e, Samples) for s in e.samples]
    assert [s.step for s in samples] == [0, 1], "what was measured before is kept"
    assert samples[0].power_w > 0, "NVML was read while it answered"
    assert nvml.opened == 0
    assert all(thread.name != "telemetry" for thread in threading.enumerate())
