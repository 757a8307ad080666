from __future__ import annotations

import statistics
import time

import pytest
import torch

from explorer.engine.delay import Delay


def test_that_on_the_cpu_the_host_waits_as_long_as_was_asked() -> None:
    delay = Delay(torch.device("cpu"), 5.0)
    began = time.perf_counter()
    delay()
    assert (time.perf_counter() - began) * 1e3 >= 5.0


@pytest.mark.gpu
@pytest.mark.alone
def test_that_on_the_gpu_the_device_waits_as_long_as_was_asked() -> None:
    delay = Delay(torch.device("cuda"), 2.0)
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        delay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    # The host waits beside the device, so the two do not add up to twice as much.
    assert statistics.median(times) == pytest.approx(2.0, rel=0.1)
