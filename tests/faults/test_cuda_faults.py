"""Faults of a real device: memory that runs out again and again, and a kernel that spoils its process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from failing import end_of, served
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.messages import Start, WorkerReady

pytestmark = pytest.mark.gpu
TIMES = 200


def test_that_memory_runs_out_two_hundred_times_without_growth(tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, device="cuda:0")
    assert end_of(served(config, steps=2)).outcome == "completed"
    # The logits of 512 x 64 tokens alone take 1 GiB, and this process may have half of that.
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**29 / total_bytes)
    held: list[int] = []
    try:
        for _ in range(TIMES):
            end = end_of(served(dataclasses.replace(config, batch=512, seq=64), steps=1))
            assert end.problem is not None
            assert (end.problem.out_of_memory, end.problem.spent) == (True, False), end.problem
            held.append(torch.cuda.memory_allocated())
        assert end_of(served(config, steps=2)).outcome == "completed"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert held[-1] <= held[0]
    assert max(held) - min(held) < 2**20


SPOIL = """
import json, sys
import torch
sys.path[:0] = json.loads(sys.argv[1])
from failing import Failing, end_of, served
from explorer.config import RunConfig
from explorer.optimizations import registry
registry.OPTIMIZATIONS = (*registry.OPTIMIZATIONS, Failing())
config = RunConfig.from_dict(json.loads(sys.argv[2]))
end = end_of(served(config.with_level("failing", "assert_in_a_kernel"), steps=5))
print(json.dumps([end.outcome, end.problem.spent, str(end.problem)]))
"""


def test_that_a_kernel_that_spoils_its_process_is_told_as_such_and_another_process_serves(tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, device="cuda:0")
    places = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", SPOIL, json.dumps(places), json.dumps(config.to_dict())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome, spent, problem = json.loads(done.stdout.splitlines()[-1])
    assert (outcome, spent) == ("failed", True)
    assert "The next run needs a new worker." in problem
    talk = Talk(open_worker())
    try:
        began_s = time.monotonic()
        talk.until(lambda e: isinstance(e, WorkerReady))
        assert time.monotonic() - began_s < 10
        talk.worker.send(Start(run_id=1, config=config, steps=2))
        assert talk.ended(1).outcome == "completed"
    finally:
        talk.worker.close()
