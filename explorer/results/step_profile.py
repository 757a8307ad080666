"""Where the time of some steps went: by part, by kind of kernel and by kernel. Plain data.

All times but one are of the steps as the profiler saw them, which slows the host. They add up: every moment of those
steps belongs to one part, either busy or waiting.
"""

from __future__ import annotations

import gzip
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer.config import Workload
from explorer.results.atomic import replaced
from explorer.results.export import Cell
from explorer.results.kernel_kinds import kind_of

MOST_STEPS = 100
"""That can be asked for: a trace of more takes minutes to read."""
REST = "rest of the step"
"""What lies in none of the named parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """One part of the steps, such as forward: all that was launched while the host was in it."""

    name: str
    busy_ms: float
    """Time in which its work ran, and nothing that had begun before."""
    waiting_ms: float
    """Time in which nothing ran until work of this part did: on the CPU, Python between operators."""
    runs: int
    """Executions of kernels and copies, on the CPU of operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """All executions of one kernel or copy, on the CPU of one operator."""

    name: str
    part: str
    """The part in which it ran for the longest."""
    count: int
    total_ms: float
    """On the CPU its own, without that of the operators it calls."""

    @property
    def kind(self) -> str:
        """What it does."""
        return kind_of(self.name)

    @property
    def each_us(self) -> float:
        """Microseconds an execution."""
        return self.total_ms * 1e3 / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """``rounds`` training steps, or as many times a text: a prefill and the tokens after it."""

    device: Literal["cuda", "cpu"]
    workload: Workload
    rounds: int
    passes: int
    """Forward passes of a round: 1 in training; in generation one for the prefill and each token after it."""
    round_ms: float
    """What a round takes without the profiler: the median of several."""
    traced_ms: float
    """All rounds as profiled: from where the first begins to the end of the last one's work."""
    parts: tuple[PartTime, ...]
    """In the order in which they come in a step."""
    kernels: tuple[KernelTime, ...]
    """The longest total first."""
    launches: int | None
    """Calls by which the host launched kernels or graphs of them, in all rounds; None on the CPU."""
    longest_gap_ms: float
    """The longest time in which nothing ran."""
    longest_gap_part: str
    """The part that then began to run."""
    replayed: bool = False
    """Whether rounds came from CUDA graphs: their kernels are of one part, as far as the host can tell."""
    trace_file: str = ""
    """Where the Chrome trace was left; empty: nowhere."""
    memory_file: str = ""
    """Where the snapshot of the memory was left."""

    @property
    def busy_ms(self) -> float:
        """Time in which anything ran, in all rounds."""
        return sum(part.busy_ms for part in self.parts)

    @property
    def waiting_ms(self) -> float:
        """Time in which nothing ran, in all rounds."""
        return sum(part.waiting_ms for part in self.parts)

    @property
    def overlap_ms(self) -> float:
        """Time of kernels beside others, in all rounds: as much more than ``busy_ms`` their times come to."""
        return sum(kernel.total_ms for kernel in self.kernels) - self.busy_ms

    @property
    def idle_share(self) -> float:
        """Share of a round in which nothing runs. On a GPU of a round without the profiler, which slows the host and
        hardly the kernels; on the CPU, where it slows both, of those that were profiled."""
        if self.device == "cpu":
            return self.waiting_ms / self.traced_ms
        return max(0.0, 1 - self.busy_ms / self.rounds / self.round_ms)

    def kinds(self) -> Mapping[str, float]:
        """Milliseconds of all rounds by what the kernels do, the most first."""
        found: defaultdict[str, float] = defaultdict(float)
        for kernel in self.kernels:
            found[kernel.kind] += kernel.total_ms
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def profile_rows(profile: StepProfile) -> Sequence[Mapping[str, Cell]]:
    """A row a part, a kind and a kernel, each with its milliseconds of one round."""

    def row(
        table: str, name: str, part: str, runs: int | None, busy_ms: float, waiting_ms: float | None
    ) -> dict[str, Cell]:
        return {
            "table": table,
            "name": name,
            "part": part,
            "runs": runs,
            "busy_ms": busy_ms / profile.rounds,
            "waiting_ms": None if waiting_ms is None else waiting_ms / profile.rounds,
            "share": (busy_ms + (waiting_ms or 0.0)) / profile.traced_ms,
            "rounds": profile.rounds,
            "round_ms": profile.round_ms,
            "traced_round_ms": profile.traced_ms / profile.rounds,
        }

    return [
        *(row("part", p.name, p.name, p.runs, p.busy_ms, p.waiting_ms) for p in profile.parts),
        *(row("kind", name, "", None, total_ms, None) for name, total_ms in profile.kinds().items()),
        *(row("kernel", k.name, k.part, k.count, k.total_ms, None) for k in profile.kernels),
    ]


def kept_file(kept: Path, target: Path) -> None:
    """Put what a profile left in ``kept`` to ``target``, packed where that ends in .gz.

    Raises:
        ValueError: there may be no such file.
        RuntimeError: the disk is full or fails.
    """
    with kept.open("rb") as source, replaced(target) as file:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                shutil.copyfileobj(source, packed)
        else:
            shutil.copyfileobj(source, file)
