"""Training data: the token stream that a configuration asks for, and batches cut from it.

B sequences of T tokens. Packed: every window is full, so there is neither padding nor mask.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import torch

from explorer.config import RunConfig
from explorer.engine.errors import BadRequest
from explorer.engine.reporting import Report
from explorer.engine.text import text_source
from explorer.engine.token_cache import cached_tokens
from explorer.engine.tokenizer import Tokenizer
from explorer.optimizations.base import DataLoading

PREFETCHED_BATCHES = 2


def token_stream(
    config: RunConfig, tokenizer: Tokenizer, *, download: bool, progress: Report, cancelled: Callable[[], bool]
) -> np.ndarray:
    """All tokens of ``config.text``, 1-D, uint16 or uint32, each document followed by ``tokenizer.end_id``.

    A memory map of the user's cache; in memory where that cannot be written, and then ``progress`` says so.

    Raises:
        BadRequest: the text is not there, is no text, or is too short for one sequence.
        Cancelled: ``cancelled`` came true.
    """
    source = text_source(config.text, download=download, progress=progress, cancelled=cancelled)
    tokens = cached_tokens(source, tokenizer, progress, cancelled)
    if len(tokens) < config.seq:
        why = f"it has only {len(tokens)} tokens, too few for one sequence of {config.seq}"
        raise BadRequest(f"Text {config.text}", why, "Use a longer text or a smaller seq.")
    return tokens


class Batches:
    """Batch i is a pure function of (seed, i, B, T): windows at offsets drawn anew for each i.

    On CUDA, unless ``load_by`` says otherwise, a thread cuts batches ahead into pinned memory; ``next`` only starts the
    copy, on the current stream.
    Each batch has its own pinned block from torch's caching host allocator, which notes the copy's event and gives
    the block out again only when that has passed: nothing is overwritten while it is copied, and after the first
    few batches nothing is allocated. (A graph capture in another thread must use
    ``capture_error_mode="thread_local"``.) On the CPU ``next`` cuts the batch itself.

    A context manager; ``close`` ends the thread.
    """

    def __init__(
        self, tokens: np.ndarray, *, batch: int, seq: int, seed: int, device: torch.device, first: int = 0
    ) -> None:
        """``tokens``: 1-D, at least ``seq`` of them. ``first``: the i to begin with.

        Raises:
            BadRequest: there are fewer.
        """
        self._tokens = tokens
        self._seed = seed
        self._device = device
        self._index = first
        self._loading: DataLoading = "prefetch"
        self._prefetch: Prefetch | None = None
        self.resize(batch, seq)

    def next(self) -> tuple[torch.Tensor, float]:
        """Token ids, int64 (B, T), on the device, and how many ms it took until they were under way."""
        began = time.perf_counter()
        if self._prefetch is not None:
            ids = self._prefetch.next().to(self._device, non_blocking=True)
        elif self._loading == "pinned":
            ids = self._cut(self._index).pin_memory().to(self._device, non_blocking=True)
        else:
            ids = self._cut(self._index).to(self._device)  # waits until the device has done all before, and has it
        self._index += 1
        return ids, (time.perf_counter() - began) * 1e3

    def resize(self, batch: int, seq: int) -> None:
        """From the next batch on B = ``batch`` and T = ``seq``; i goes on.

        Raises:
            BadRequest: there are fewer than ``seq`` tokens; the size stays as it was.
        """
        if len(self._tokens) < seq:
            why = f"it has only {len(self._tokens)} tokens, too few for one sequence of {seq}"
            raise BadRequest("The text", why, "Use a longer text or a smaller seq.")
        self.close()
        self._batch, self._seq = batch, seq
        self._begin()

    @property
    def index(self) -> int:
        """The i of the next batch."""
        return self._index

    def skip_to(self, index: int) -> None:
        """The next batch is i = ``index``."""
        self.close()
        self._index = index
        self._begin()

    def load_by(self, loading: DataLoading) -> None:
        """From the next batch on come to a CUDA device by ``loading``; i goes on. On the CPU nothing is copied."""
        if loading != self._loading:
            self.close()
            self._loading = loading
            self._begin()

    def close(self) -> None:
        """End the thread, if there is one, and wait for its end."""
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        if self._device.type == "cuda" and self._loading == "prefetch":
            self._prefetch = Prefetch(lambda index: self._cut(index).pin_memory(), first=self._index)

    def _cut(self, index: int) -> torch.Tensor:
        """Batch ``index``, int64 (B, T) on the host."""
        draw = np.random.default_rng([self._seed, index])
        starts = draw.integers(0, len(self._tokens) - self._seq, size=(self._batch, 1), endpoint=True)
        return torch.from_numpy(self._tokens[starts + np.arange(self._seq)].astype(np.int64))


class Prefetch:
    """A thread that calls ``make(first)``, ``make(first + 1)``, … at most ``PREFETCHED_BATCHES`` ahead of ``next``."""

    def __init__(self, make: Callable[[int], torch.Tensor], *, first: int) -> None:
        self._make = make
        self._ready: queue.Queue[torch.Tensor | Exception] = queue.Queue(PREFETCHED_BATCHES)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(first,), name="batches", daemon=True)
        self._thread.start()

    def next(self) -> torch.Tensor:
        """What ``make`` returned for the next index; raises what it raised."""
        ready = self._ready.get()
        if isinstance(ready, Exception):
            self._ready.put(ready)  # asked again, it answers the same: the thread is at its end
            raise ready
        return ready

    def close(self) -> None:
        """End the thread and wait for its end."""
        self._closing.set()
        while self._thread.is_alive():
            try:  # the thread may be waiting for room
                self._ready.get_nowait()
            except queue.Empty:
                self._thread.join(timeout=0.01)

    def _run(self, index: int) -> None:
        while not self._closing.is_set():
            try:
                made: torch.Tensor | Exception = self._make(index)
            except Exception as error:
                made = error
            self._ready.put(made)
            if isinstance(made, Exception):
                return
            index += 1
