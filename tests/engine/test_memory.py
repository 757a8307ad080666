"""Memory within a step: peak and held, against tensors of known size."""

import mmap

import numpy as np
import pytest
import torch

from explorer.engine.memory import StepMemory
from explorer.engine.resident import resident_bytes


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
