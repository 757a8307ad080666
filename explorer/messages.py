"""All that crosses between the worker and whoever drives it: a closed union each way."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from explorer.config import RunConfig
from explorer.results.environment import Environment
from explorer.results.lab import Case, LabRow
from explorer.results.parity import Parity
from explorer.results.proof import Profile
from explorer.results.sample import Sample, Segment
from explorer.results.step_profile import MOST_STEPS, StepProfile
from explorer.results.ways_out import WaysOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error fit to be read: what happened, why, what to do; ``detail`` is for a bug report."""

    what: str
    why: str
    remedy: str = ""
    detail: str = ""
    bad_request: bool = False
    """Whether it was the request that is at fault (exit status 2), not the run (1)."""
    out_of_memory: bool = False
    """Whether the device, or the machine, had too little memory."""
    spent: bool = False
    """Whether its worker can serve no other run: every call to the device fails by now, or memory is not back."""
    outside: bool = False
    """Whether it comes of something beyond the run and its settings, such as a full disk."""
    flips: tuple[tuple[str, str], ...] = ()
    """Toggles, each with a level, that would avoid it; to be tried one at a time."""
    batch: int | None = None
    """A batch to try instead, where that was too large."""

    @property
    def ways_out(self) -> WaysOut:
        """What to try instead."""
        return WaysOut(flips=self.flips, batch=self.batch)

    def __str__(self) -> str:
        return f"{self.what}: {self.why.rstrip('.')}. {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """Before a change that may cost the process, the state of a run in training was written to a file.

    An event; in a Start it says where to go on.
    """

    run_id: int
    path: str
    config: RunConfig
    """With which the run can go on from there: that of before the change."""
    changes: tuple[str, ...]
    """What was about to change, in words."""
    step: int
    """The next one."""
    segments: int
    """How many there are with the one that begins with the change."""


# ---- commands: to the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Run ``config`` for ``steps`` steps, or until stopped. A generation run ends by itself.

    ``download``: fetching weights or text from the network is allowed for this run.
    """

    run_id: int
    config: RunConfig
    steps: int | None = None
    download: bool = False
    save_to: str = ""
    """Folder that the trained model is written to when its steps are done, or stopped; empty: it is not written."""
    summarize_memory: bool = False
    """Say what is held, as SummarizeMemory does, after the last step."""
    park_to: str = ""
    """Folder that the state is written to before a change that may cost the process; empty: it is not written."""
    parked: Parked | None = None
    """What to go on from, ``config`` being that of before the change; None: from the beginning."""
    nvtx: bool = False
    """Whether the parts of its steps are NVTX ranges, for ``nsys profile``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Run two arms by turns, in blocks, until stopped (by a Stop of the first run id).

    Each arm is a run of its own; a block is ``block_s`` seconds or ``block_steps`` steps, whichever is longer. Each
    pair has a block of A and one of B for each of ``delays``, which number the arms from 1 on.
    """

    run_ids: tuple[int, int]
    arms: tuple[RunConfig, RunConfig]
    block_s: float = 2.0
    block_steps: int = 10
    seed: int = 0
    """Of the order in which blocks follow each other."""
    delays: tuple[float, ...] = (0.0,)
    """The shares of its own step time by which B's steps are made longer on purpose, to see whether it shows."""
    a_alone: bool = True
    """Whether A runs alone first, for its peak of memory; it need not where that is known."""
    download: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Check configurations beside their speed, one after another; a check that fails does not end the others.

    Raises:
        ValueError: there is none.

    Profiles are taken in processes of their own, so that none slows what this worker times afterwards.
    """

    run_id: int
    parity: tuple[RunConfig, ...] = ()
    """Whose numbers are to be held against float32's."""
    proof: tuple[RunConfig, ...] = ()
    """Which are to be profiled."""
    download: bool = False

    def __post_init__(self) -> None:
        if not (self.parity or self.proof):
            raise ValueError("there is nothing to verify; name a configuration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Measure ``variants`` of one operation, one after another, each with an event of its own.

    It ends early after a variant that failed, since that may have spoilt the worker.
    """

    run_id: int
    device: str
    case: Case
    variants: tuple[str, ...]
    quick: bool = False
    """Fewer repetitions."""
    download: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSteps:
    """Profile ``steps`` steps of ``config`` after a warm-up, in a process of its own; in generation, tokens after the
    prefill. A run that is going pauses for it at its next step boundary.

    ``folder``: where the Chrome trace is left, and with ``memory`` a snapshot of what was allocated; empty: nowhere.

    Raises:
        ValueError: ``steps`` is out of range.
    """

    run_id: int
    config: RunConfig
    steps: int = 3
    folder: str = ""
    memory: bool = False
    download: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps is {self.steps}; allowed: 1 to {MOST_STEPS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Write the model that ``config`` names to the file ``target`` for serving; answered by Exported.

    A name that ends in .pt2 asks for torch.export's format, one in .onnx for ONNX.
    """

    run_id: int
    config: RunConfig
    target: str
    download: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigure:
    """Go on with ``config`` from the next step boundary; weights and optimizer state stay."""

    run_id: int
    config: RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write the model in training, as it is at the next step boundary, to ``folder``; answered by Saved."""

    run_id: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizeMemory:
    """Say what this process holds, at the next step boundary, or now where no run is going.

    Answered by MemorySummary.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyCache:
    """Give the allocator's cache back to the device, likewise; answered by CacheEmptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    run_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    pass


Work = Start | Compare | Verify | Bench | ProfileSteps | Export
"""What takes its time and ends with RunEnded."""

Aside = SummarizeMemory | EmptyCache
"""What is answered between two steps; other work is done first."""

Command = Work | Aside | Reconfigure | Save | Stop | Shutdown

# ---- events: from the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """The worker has imported torch and seen the machine. Sent once, first."""

    environment: Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the run is doing while no steps come: ``done`` of ``total`` (None: unknown) in ``unit``."""

    run_id: int
    activity: str
    done: float | None = None
    total: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something about the machine that bears on the run's numbers, seen before it or while it goes on."""

    run_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStarted:
    """Samples from ``segment.first_step`` on were made with ``config`` (as it ran: device resolved)."""

    run_id: int
    config: RunConfig
    segment: Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    run_id: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEnded:
    """One block of a comparison is over. Its steps' samples have been sent before."""

    run_id: int
    arm: int
    """0 for A; 1 for B, and from there on by the delays of ``Compare``."""
    pair: int
    steps: int
    step_ms_median: float
    sm_clock_mhz: float
    other_processes_bytes: int = -1
    """The most that other processes held of the device; -1: not known."""
    slept: bool = False
    """Whether the machine slept within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityChecked:
    """How far the numbers of ``config`` are from float32's, or why that was not to be found out."""

    run_id: int
    config: RunConfig
    found: Parity | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What ran in ``config``'s steps, or why that was not to be found out."""

    run_id: int
    config: RunConfig
    found: Profile | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """One variant of a Bench was measured, or cannot be."""

    run_id: int
    row: LabRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsProfiled:
    """Where the time of ``config``'s steps went, or why that was not to be found out."""

    run_id: int
    config: RunConfig
    found: StepProfile | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text to append to what generation has shown so far of one sequence."""

    run_id: int
    text: str
    row: int = 0
    """Which sequence of the batch: the first of those that begin with this one of ``RunConfig.prompts``."""
    step: int | None = None
    """Of a sample, which is a whole text with its prompt: how many steps the model that wrote it had been trained."""

    @property
    def told(self) -> str:
        """The text as it is kept and printed: a sample with its step over it."""
        return self.text if self.step is None else f"--- step {self.step}\n{self.text}\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A model was written to ``folder``, or why not; the run goes on."""

    run_id: int
    folder: str
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A model was written for serving, and computes as the model does."""

    run_id: int
    target: str
    largest_error: float
    """Of a logit, against the model's."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySummary:
    """What the worker's process holds."""

    lines: tuple[str, ...]
    """Finished English."""
    tables: tuple[str, ...]
    """torch.cuda.memory_summary of each CUDA device of which something is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEmptied:
    """What came of EmptyCache, all CUDA devices together."""

    freed_bytes: int
    held_bytes: int
    """What the allocator still holds: what live tensors and CUDA graphs need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A Reconfigure could not be done; the run goes on as it was, with ``config``."""

    run_id: int
    config: RunConfig
    problem: Problem
    resumed: bool = False
    """Whether it goes on from what it had parked, in a segment of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last event of a run. ``problem`` is set when, and only when, it failed."""

    run_id: int
    outcome: Literal["completed", "stopped", "failed"]
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """The worker is gone without having been asked to. ``last_words``: the end of its error output."""

    exit_code: int | None
    """Negative: the number of the signal that ended it. None: it was a thread."""
    last_words: str
    for_want_of_memory: bool | None = None
    """Whether the system ended processes for want of memory just then. None: it does not tell."""

    @property
    def from_outside(self) -> bool:
        """Whether another process or the system ended it: a signal that no program's own mistake raises."""
        return self.exit_code is not None and -self.exit_code in _SENT

    @property
    def how(self) -> str:
        """How it ended, to stand after "the worker ended by itself"."""
        if self.exit_code is None:
            return ""
        if self.exit_code >= 0:
            return f" with exit code {self.exit_code}"
        killed = -self.exit_code
        try:
            name = signal.Signals(killed).name
        except ValueError:
            name = f"signal {killed}"
        if name == "SIGKILL" and self.for_want_of_memory is None:
            # Source: Linux, Documentation/admin-guide/mm/concepts.rst: the OOM killer.
            return f" on {name}, which a system sends that is out of memory"
        if name == "SIGKILL" and self.for_want_of_memory:
            return f" on {name}, which the system sent, being out of memory"
        return f" on {name}" + (", which another program sent" if self.from_outside else "")


_SENT = tuple(
    getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT") if hasattr(signal, name)
)


Event = (
    WorkerReady
    | Progress
    | Note
    | SegmentStarted
    | Samples
    | Parked
    | BlockEnded
    | ParityChecked
    | Profiled
    | Benched
    | StepsProfiled
    | Text
    | Saved
    | Exported
    | MemorySummary
    | CacheEmptied
    | Refused
    | RunEnded
    | WorkerLost
)
