"""Memory within a step: peak and held, against tensors of known size."""

import mmap

import numpy as np
import pytest
import torch
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.engine.memory import StepMemory
from explorer.engine.resident import resident_bytes
from explorer.messages import Start
from explorer.results.ring import as_columns
from explorer.results.statistics import summary


def test_that_on_the_cpu_both_are_the_resident_memory():
    memory = StepMemory(torch.device("cpu"))
    memory.begin()
    before, _ = memory.read()
    # Mapped anew: what an allocator hands out may have been freed, and resident, before.
    held = np.frombuffer(mmap.mmap(-1, 2**26), dtype=np.uint8)
    held.fill(1)
    peak, reserved = memory.read()
    assert peak == reserved
    # Within 8 MiB of what else the interpreter does meanwhile.
    assert abs(peak - before - held.nbytes) < 2**23
    assert abs(peak - resident_bytes()) < 2**22


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_that_the_peak_is_that_of_the_step_and_the_cache_stays_held(name):
    mib = 2**20
    memory = StepMemory(torch.device(name))
    held = torch.empty(64 * mib, dtype=torch.uint8, device=name)
    memory.begin()
    base, _ = memory.read()
    inside = torch.empty(256 * mib, dtype=torch.uint8, device=name)
    del inside
    peak, reserved = memory.read()
    assert peak - base == 256 * mib
    assert base >= held.nbytes
    assert reserved >= peak
    assert (peak, reserved) == (torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
    memory.begin()
    next_peak, next_reserved = memory.read()
    assert (next_peak, next_reserved) == (base, reserved)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("graph", [(), (("cuda_graph", "on"),)])
def test_that_the_bands_of_a_run_come_to_what_the_device_has_in_use(graph):
    levels = (("attention", "sdpa"), *graph, ("dropout", "off"), ("precision", "bf16"))
    config = RunConfig(model="gpt2", batch=8, seq=1024, levels=levels)
    talk = Talk(open_worker(in_process=False))
    try:
        talk.worker.send(Start(run_id=1, config=config, steps=40))
        assert talk.ended(1).problem is None
    finally:
        talk.worker.close()
    figures = summary(as_columns([sample for sample in talk.samples(1) if sample.phase == "steady"]))
    assert figures.device_used_bytes > 5 * 2**30
    assert abs(figures.memory_unexplained_bytes) < 0.02 * figures.device_used_bytes
    # Under a graph the allocator's own peak would be the weights and AdamW's averages alone, some 2 GiB.
    assert 0.6 * figures.reserved_bytes < figures.peak_allocated_bytes <= figures.reserved_bytes
