"""Step times from CUDA events that are read once complete: the host never waits for a step's result.

A script that calls ``loss.item()`` each step makes Python wait for the device and leaves the device idle while
Python prepares the next step. Here a step's numbers travel to pinned memory behind the step itself, and are
picked up some steps later.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

DEPTH = 3
"""Steps that may be under way at once. Beyond it the host waits for the oldest: with whole-step graphs it could
otherwise run minutes ahead, and Stop would take as long."""

Note = TypeVar("Note")


class Mark(Protocol):
    """A point in a device's time."""

    def done(self) -> bool: ...
    def wait(self) -> None: ...
    def ms_after(self, earlier: Mark) -> float: ...


class CudaMark:
    """A CUDA event recorded on the current stream."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def done(self) -> bool:
        return self.event.query()

    def wait(self) -> None:
        self.event.synchronize()

    def ms_after(self, earlier: Mark) -> float:
        assert isinstance(earlier, CudaMark)
        return earlier.event.elapsed_time(self.event)


class HostMark:
    """The host's clock: on the CPU a step is over when its call returns."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = time.perf_counter()

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def ms_after(self, earlier: Mark) -> float:
        assert isinstance(earlier, HostMark)
        return (self.seconds - earlier.seconds) * 1e3


def mark(device: torch.device) -> Mark:
    """Now, in ``device``'s time: the point at which all work submitted so far is over."""
    return CudaMark() if device.type == "cuda" else HostMark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Generic[Note]):
    """A step that is over on the device."""

    step_ms: float
    """From the end of the step before (or from ``restart``) to the end of this one."""
    time_s: float
    """From the first ``restart`` to the end of this step."""
    values: list[float]
    """What was passed to ``submit``, on the host."""
    note: Note


class StepPipeline(Generic[Note]):
    """Steps in flight, first in first out, each with the scalars that it computed."""

    def __init__(self, device: torch.device) -> None:
        self.depth = DEPTH
        """Steps that may be under way at once."""
        self._device = device
        self._pending: deque[tuple[Mark, torch.Tensor | None, Note]] = deque()
        self._last: Mark | None = None
        self._time_s = 0.0

    def restart(self) -> None:
        """Begin to time here: what happened since the last step belongs to no step, but its time passed."""
        assert not self._pending
        now = mark(self._device)
        if self._last is not None:
            now.wait()
            self._time_s += now.ms_after(self._last) / 1e3
        self._last = now

    def submit(self, values: list[torch.Tensor], note: Note) -> None:
        """End a step. ``values``: a tensor on the device, whose numbers come through exactly, or several, which
        come flattened to one list of float32 numbers."""
        host = None
        if values:
            flat = values[0].detach()
            if len(values) > 1:
                flat = torch.cat([value.detach().reshape(-1).to(torch.float32) for value in values])
            host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=self._device.type == "cuda")
            host.copy_(flat, non_blocking=True)
        self._pending.append((mark(self._device), host, note))

    @property
    def under_way(self) -> int:
        """Steps that were submitted and not yet collected."""
        return len(self._pending)

    def collect(self, *, all_of_them: bool = False) -> list[Completed[Note]]:
        """The steps that are over and were not yet collected; ``all_of_them`` waits for those under way."""
        completed = []
        while self._pending:
            end, host, note = self._pending[0]
            if not end.done():
                if not all_of_them and len(self._pending) < self.depth:
                    break
                end.wait()
            self._pending.popleft()
            assert self._last is not None
            step_ms = end.ms_after(self._last)
            self._last = end
            self._time_s += step_ms / 1e3
            values = [] if host is None else host.reshape(-1).tolist()
            completed.append(Completed(step_ms=step_ms, time_s=self._time_s, values=values, note=note))
        return completed
