from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from worker_talk import Talk

from explorer.config import RunConfig
from explorer.engine.isolation import ProcessWorker, open_worker
from explorer.messages import (
    MemorySummary,
    Profiled,
    Reconfigure,
    Refused,
    Samples,
    Save,
    Saved,
    Start,
    Stop,
    SummarizeMemory,
    Text,
    Verify,
    WorkerLost,
    WorkerReady,
)
from explorer.results.proof import Profile

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["process", "thread"])
def shared(request: pytest.FixtureRequest) -> Iterator[Talk]:
    """One worker of each kind for the tests that leave it usable, which is a fact about it, too."""
    talk = Talk(open_worker(in_process=request.param == "thread"))
    try:
        talk.until(lambda e: isinstance(e, WorkerReady))
        yield talk
    finally:
        began = time.monotonic()
        talk.worker.close()
        assert time.monotonic() - began < 5
        assert not talk.worker.alive


@pytest.fixture
def talk(shared: Talk) -> Talk:
    shared.events.clear()
    return shared


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(2000)))
    return file


@pytest.fixture
def tiny(tiny_model: Path, text_file: Path) -> RunConfig:
    return RunConfig(model=str(tiny_model), device="cpu", text=str(text_file), batch=2, seq=16, lr=1e-3)


_ids = iter(range(1, 10_000))


def test_that_commands_to_a_process_that_is_stopped_hold_nobody_up() -> None:
    """A pipe takes 64 KiB. A process in a call that holds its interpreter takes no more of them, either."""
    worker = ProcessWorker()
    talk = Talk(worker)
    try:
        talk.until(lambda e: isinstance(e, WorkerReady))
        os.kill(worker.process_id, signal.SIGSTOP)
        sending = threading.Thread(
            target=lambda: [worker.send(Stop(run_id=number)) for number in range(5000)], daemon=True
        )
        sending.start()
        sending.join(20)
        assert not sending.is_alive()
        os.kill(worker.process_id, signal.SIGCONT)
        worker.send(SummarizeMemory())
        talk.until(lambda e: isinstance(e, MemorySummary))
        os.kill(worker.process_id, signal.SIGSTOP)
    finally:
        began_s = time.monotonic()
        worker.close()
    assert time.monotonic() - began_s < 5, "one that is stopped can be ended"


def test_that_no_garbage_is_looked_for_while_a_workers_process_imports_and_again_from_then_on() -> None:
    watch = """
import gc, sys
from explorer.engine.runner import Runner
from explorer.messages import Shutdown, WorkerReady

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers"):
            print(name, gc.isenabled())

sys.meta_path.insert(0, Watch())

def tell(event):
    print(type(event).__name__, gc.isenabled(), gc.get_freeze_count() > 1e5)

runner = Runner(tell, owns_process=True)
runner.post(Shutdown())
runner.serve()
"""
    told = subprocess.run([sys.executable, "-c", watch], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["torch False", "transformers False", "WorkerReady True True"]


def test_that_a_segment_says_how_much_arithmetic_a_token_of_it_is(talk: Talk, tiny: RunConfig) -> None:
    run, other = next(_ids), next(_ids)
    talk.worker.send(Start(run_id=run, config=tiny, steps=2))
    talk.ended(run)
    generate = dataclasses.replace(tiny, workload="generate", max_new_tokens=2)
    talk.worker.send(Start(run_id=other, config=generate))
    talk.ended(other)
    layers, width, vocabulary, seq = 2, 32, 8192, 16
    block = 12 * width**2 + 13 * width
    parameters = vocabulary * width + layers * block + 2 * width  # all but the positions
    (trained,), (generated,) = talk.segments(run), talk.segments(other)
    assert trained.segment.flop_per_token == 6 * parameters + 12 * layers * width * seq
    assert (generated.segment.flop_per_token, generated.segment.ceiling_tflop_per_s) == (None, None)


def test_that_training_runs_its_steps_and_learns(talk: Talk, tiny: RunConfig) -> None:
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=tiny, steps=60))
    ended = talk.ended(run)
    assert (ended.outcome, ended.problem) == ("completed", None)
    samples = talk.samples(run)
    assert [s.step for s in samples] == list(range(60))
    assert samples[0].phase == "compile"
    assert all(s.tokens == 32 and s.step_ms > 0 and s.grad_norm > 0 for s in samples)
    assert abs(samples[0].loss - math.log(8192)) < 1
    assert samples[-1].loss < samples[0].loss - 0.5
    (segment,) = talk.segments(run)
    assert segment.config.device == "cpu"


def test_that_the_same_seed_gives_the_same_losses_and_another_does_not(talk: Talk, tiny: RunConfig) -> None:
    losses = []
    for seed in (3, 3, 4):
        run = next(_ids)
        talk.worker.send(Start(run_id=run, config=dataclasses.replace(tiny, seed=seed), steps=5))
        assert talk.ended(run).outcome == "completed"
        losses.append([s.loss for s in talk.samples(run)])
    assert losses[0] == losses[1] != losses[2]


def test_that_a_live_change_keeps_weights_and_optimizer_and_begins_a_segment(talk: Talk, tiny: RunConfig) -> None:
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=tiny))
    talk.until(lambda e: isinstance(e, Samples) and e.samples[-1].step >= 30)
    after = dataclasses.replace(tiny.with_level("attention", "sdpa"), batch=4)
    talk.worker.send(Reconfigure(run_id=run, config=after))
    talk.until(lambda e: isinstance(e, Samples) and e.samples[-1].segment == 1 and e.samples[-1].step >= 40)
    talk.worker.send(Stop(run_id=run))
    assert talk.ended(run).outcome == "stopped"
    _, second = talk.segments(run)
    assert second.segment.changes == ("attention naive -> sdpa", "batch 2 -> 4")
    assert second.config.level("attention") == "sdpa"
    samples = talk.samples(run)
    assert [s.step for s in samples] == list(range(len(samples)))
    at = second.segment.first_step
    assert {s.segment for s in samples[:at]} == {0}
    assert {s.segment for s in samples[at:]} == {1}
    assert samples[at].tokens == 64
    assert samples[at].phase == "compile"
    # Fresh weights would be back at the first loss, and so would an optimizer that forgot nothing but its weights.
    assert samples[at].loss < samples[0].loss - 0.3
    assert all(a.time_s < b.time_s for a, b in pairwise(samples))


def test_that_a_change_that_cannot_be_made_is_refused_and_the_run_goes_on(talk: Talk, tiny: RunConfig) -> None:
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=tiny))
    talk.until(lambda e: isinstance(e, Samples))
    for wrong, words in (
        (tiny.with_level("attention", "flash"), "CUDA"),
        (dataclasses.replace(tiny, seed=99), "seed is fixed"),
        (dataclasses.replace(tiny, seq=65), "at most 64"),
        (tiny.with_level("nonsense", "on"), "no toggle is called"),
    ):
        talk.worker.send(Reconfigure(run_id=run, config=wrong))
        refused = talk.until(lambda e: isinstance(e, Refused))
        assert isinstance(refused, Refused)
        assert words in str(refused.problem)
        assert refused.config.levels == ()
    talk.until(lambda e: isinstance(e, Samples))
    talk.worker.send(Stop(run_id=run))
    assert talk.ended(run).outcome == "stopped"
    assert len(talk.segments(run)) == 1


def test_that_a_stop_sent_before_the_run_began_is_not_lost(talk: Talk, tiny: RunConfig) -> None:
    for _ in range(5):
        run = next(_ids)
        talk.worker.send(Start(run_id=run, config=tiny))
        talk.worker.send(Stop(run_id=run))
        assert talk.ended(run).outcome == "stopped"


def test_that_a_model_in_training_writes_samples_and_is_saved_between_steps(
    talk: Talk, tiny: RunConfig, tmp_path: Path
) -> None:
    config = dataclasses.replace(tiny, sample_every=3, prompt="def f", max_new_tokens=5)
    run, over = next(_ids), tmp_path / "over"
    talk.worker.send(Start(run_id=run, config=config, save_to=str(tmp_path / "end")))
    talk.until(lambda e: isinstance(e, Text) and e.step == 3)
    talk.worker.send(Save(run_id=run, folder=str(tmp_path / "midway")))
    saved = talk.until(lambda e: isinstance(e, Saved))
    talk.worker.send(Save(run_id=run, folder=str(tmp_path / "midway")))
    refused = talk.until(lambda e: isinstance(e, Saved))
    talk.until(lambda e: isinstance(e, Text) and e.step >= 9)
    talk.worker.send(Stop(run_id=run))
    assert talk.ended(run).outcome == "stopped"
    assert saved == Saved(run_id=run, folder=str(tmp_path / "midway"))
    assert "not empty" in str(refused.problem)
    texts = [e for e in talk.events if isinstance(e, Text)]
    assert [e.step for e in texts] == list(range(3, 3 * len(texts) + 1, 3))
    assert all(e.text.startswith("def f") and len(e.text) > 5 for e in texts)
    samples = talk.samples(run)
    assert [s.step for s in samples] == list(range(len(samples)))
    assert {s.segment for s in samples} == {0}
    ways = [load_file(tmp_path / name / "model.safetensors") for name in ("midway", "end")]
    assert any(not torch.equal(tensor, ways[1][name]) for name, tensor in ways[0].items())
    talk.worker.send(Save(run_id=run, folder=str(over)))
    late = talk.until(lambda e: isinstance(e, Saved))
    assert "ended" in str(late.problem)
    assert len([e for e in talk.events if isinstance(e, Saved)]) == 4, "each answered once: midway, again, end, late"
    assert not over.exists()


def test_that_generation_streams_text_and_ends_by_itself(talk: Talk, tiny: RunConfig) -> None:
    config = dataclasses.replace(tiny, workload="generate", prompt="def ", max_new_tokens=24, batch=1)
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=config))
    assert talk.ended(run).outcome == "completed"
    samples = talk.samples(run)
    assert [s.phase for s in samples[:2]] == ["prefill", "compile"]
    assert [s.step for s in samples] == list(range(24))
    assert "".join(e.text for e in talk.events if isinstance(e, Text))


@pytest.mark.parametrize("shared", ["process"], indirect=True)
def test_that_stop_ends_a_text_within_100_ms(talk: Talk, tiny: RunConfig) -> None:
    """The best of some: other processes of the machine may have it meanwhile."""
    config = dataclasses.replace(tiny, workload="generate", max_new_tokens=1024, batch=1)
    took_s = []
    for _ in range(5):
        run = next(_ids)
        talk.worker.send(Start(run_id=run, config=config))
        talk.until(lambda e: isinstance(e, Samples))
        began = time.monotonic()
        talk.worker.send(Stop(run_id=run))
        assert talk.ended(run).outcome == "stopped"
        took_s.append(time.monotonic() - began)
        assert 0 < len(talk.samples(run)) < 1024
    assert min(took_s) < 0.1, took_s


@pytest.mark.parametrize("shared", ["process"], indirect=True)
def test_that_a_worker_in_a_process_takes_proofs_in_a_child_of_its_own(talk: Talk, tiny: RunConfig) -> None:
    config = tiny.with_level("checkpointing", "alternate")
    run = next(_ids)
    talk.worker.send(Verify(run_id=run, proof=(config,)))
    assert talk.ended(run).outcome == "completed"
    (profiled,) = (e for e in talk.events if isinstance(e, Profiled))
    assert profiled.config == config
    assert isinstance(profiled.found, Profile), profiled.found
    assert profiled.found.recomputed_blocks == (0,)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"device": "cuda:7"}, "cuda:7"),
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"seq": 65}, "64 positions"),
        ({"text": "/nowhere.txt"}, "/nowhere.txt"),
        ({"levels": (("gelu", "triton"),)}, "gelu=triton"),
        ({"levels": (("gelu", "fast"),)}, "allowed: hf, torch, triton"),
    ],
)
def test_that_a_wrong_request_is_named_and_the_next_run_goes(
    talk: Talk, tiny: RunConfig, wrong: dict[str, object], words: str
) -> None:
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=dataclasses.replace(tiny, **wrong), steps=2))  # type: ignore[arg-type]
    ended = talk.ended(run)
    assert ended.outcome == "failed"
    assert ended.problem is not None
    assert ended.problem.bad_request
    assert words in str(ended.problem)
    run = next(_ids)
    talk.worker.send(Start(run_id=run, config=tiny, steps=2))
    assert talk.ended(run).outcome == "completed"


def test_that_a_killed_worker_is_noticed_with_its_last_words() -> None:
    worker = ProcessWorker()
    talk = Talk(worker)
    talk.until(lambda e: isinstance(e, WorkerReady))
    os.kill(worker.process_id, signal.SIGSEGV)
    lost = talk.until(lambda e: isinstance(e, WorkerLost), within_s=2)
    assert isinstance(lost, WorkerLost)
    assert lost.exit_code == -signal.SIGSEGV
    assert "Segmentation fault" in lost.last_words
    assert not worker.alive
    worker.close()


DRIVER = """
import sys, time
from explorer.config import RunConfig
from explorer.engine.isolation import open_worker
from explorer.messages import Samples, Start
if __name__ == "__main__":
    worker = open_worker()
    worker.send(Start(run_id=1, config=RunConfig(model=sys.argv[1], text=sys.argv[2], device="cpu", batch=2, seq=16)))
    while not any(isinstance(e, Samples) for e in worker.drain()):
        time.sleep(0.01)
    print(worker.process_id, flush=True)
    time.sleep(60)
"""


STARTING = """
import multiprocessing, os, threading
from explorer.engine import gather, isolation
from explorer.messages import WorkerReady

asked, ready = [], threading.Event()

class SlowDriver:
    def cuInit(self, flags):
        asked.append(flags)
        ready.wait()  # longer than all of the imports

def remove_lost():
    print(asked, ready.is_set(), flush=True)
    os._exit(0)

def read():
    while not isinstance(seen.recv(), WorkerReady):
        pass
    print("ready", flush=True)
    ready.set()

gather._driver_library, isolation.remove_lost = SlowDriver, remove_lost
commands, _kept = multiprocessing.Pipe(duplex=False)
seen, events = multiprocessing.Pipe(duplex=False)
threading.Thread(target=read).start()
isolation._serve(commands, events, os.devnull)
"""


def test_that_a_starting_worker_wakes_the_driver_and_removes_what_is_lost_beside_its_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTING], cwd=ROOT, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.stdout == "ready\n[0] True\n", done.stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="watches processes through /proc")
def test_that_a_working_worker_ends_within_a_second_of_its_parents_death(
    tiny_model: Path, text_file: Path, tmp_path: Path
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tiny_model), str(text_file)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    died = time.monotonic()
    while _running(worker):
        assert time.monotonic() - died < 1.0
        time.sleep(0.01)


def _running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
