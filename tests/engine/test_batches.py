"""Batches are windows of the token stream, the same for the same seed, at any size, and leave no thread."""

import threading
from collections import Counter

import numpy as np
import pytest
import torch

from explorer.engine.data import PREFETCHED_BATCHES, Batches, Prefetch
from explorer.engine.errors import BadRequest

CPU = torch.device("cpu")
TOKENS = np.arange(1000, dtype=np.uint16)


def batches(tokens=TOKENS, batch=3, seq=16, seed=7, device=CPU, first=0):
    return Batches(tokens, batch=batch, seq=seq, seed=seed, device=device, first=first)


def test_that_rows_are_windows_of_the_stream():
    with batches() as source:
        ids, wait_ms = source.next()
    assert (ids.shape, ids.dtype, ids.device) == ((3, 16), torch.int64, CPU)
    assert (ids - ids[:, :1] == torch.arange(16)).all()
    assert wait_ms >= 0


def test_that_windows_reach_both_ends_of_the_stream():
    with batches(tokens=TOKENS[:20], batch=64) as source:
        starts = Counter(source.next()[0][:, 0].tolist())
    assert sorted(starts) == [0, 1, 2, 3, 4]


def test_that_a_batch_depends_on_seed_index_and_size_alone():
    with batches() as one, batches() as two, batches(seed=8) as other, batches(first=2) as later:
        first = [one.next()[0] for _ in range(3)]
        two.next()
        two.resize(3, 16)
        assert torch.equal(first[1], two.next()[0])
        assert torch.equal(first[2], later.next()[0])
        assert not torch.equal(first[0], first[1])
        assert not torch.equal(first[0], other.next()[0])


def test_that_resizing_goes_on_at_the_same_index():
    with batches() as resized, batches(batch=5, seq=8) as steady:
        resized.next()
        steady.next()
        resized.resize(5, 8)
        assert torch.equal(resized.next()[0], steady.next()[0])


def test_that_a_sequence_longer_than_the_text_is_refused_and_the_size_stays():
    with batches() as source:
        with pytest.raises(BadRequest, match="only 1000 tokens"):
            source.resize(3, 1001)
        assert source.next()[0].shape == (3, 16)
        source.resize(2, 1000)
        assert source.next()[0].tolist() == [list(range(1000))] * 2


def test_that_prefetching_keeps_the_order_and_stays_a_little_ahead():
    made, enough = [], threading.Event()

    def make(index):
        made.append(index)
        if len(made) == 5 + PREFETCHED_BATCHES:
            enough.set()
        return torch.tensor(index)

    prefetch = Prefetch(make, first=10)
    try:
        assert [int(prefetch.next()) for _ in range(5)] == [10, 11, 12, 13, 14]
        assert enough.wait(10)
        # One more may be made and wait for its place.
        assert len(made) <= 5 + PREFETCHED_BATCHES + 1
    finally:
        prefetch.close()
    assert "batches" not in [thread.name for thread in threading.enumerate()]


def test_that_an_error_while_prefetching_reaches_next_each_time():
    def make(index):
        if index == 2:
            raise OSError("disk gone")
        return torch.tensor(index)

    prefetch = Prefetch(make, first=0)
    try:
        assert [int(prefetch.next()) for _ in range(2)] == [0, 1]
        for _ in range(3):
            with pytest.raises(OSError, match="disk gone"):
                prefetch.next()
    finally:
        prefetch.close()


@pytest.mark.gpu
def test_that_batches_on_cuda_are_those_of_the_cpu_across_a_resize():
    cuda = torch.device("cuda")
    tokens = np.random.default_rng(0).integers(0, 8192, 100_000).astype(np.uint16)
    with batches(tokens=tokens, device=cuda) as there, batches(tokens=tokens) as here:
        received = []
        for step in range(400):
            if step == 200:
                there.resize(64, 512)
                here.resize(64, 512)
            ids, _ = there.next()
            received.append((ids, here.next()[0]))
        # Compared only now, when the pinned blocks have been used again many times.
        assert all(torch.equal(ids.cpu(), expected) for ids, expected in received)
    assert "batches" not in [thread.name for thread in threading.enumerate()]
