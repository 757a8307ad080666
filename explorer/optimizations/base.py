"""What a toggle is, and the run that it is applied to. Importing this imports neither torch nor transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from explorer.config import RunConfig, Workload
from explorer.optimizations.snippet import Snippet
from explorer.results.environment import DeviceInfo
from explorer.results.forecast import MemoryTerms
from explorer.results.proof import Evidence, Profile

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import GPT2LMHeadModel

    from explorer.optimizations.rows import Rows

Tier = Literal["framework", "algorithm", "system", "hardware"]
TIERS: tuple[Tier, ...] = ("framework", "algorithm", "system", "hardware")
DataLoading = Literal["prefetch", "pinned", "pageable"]
"""How a batch comes to a CUDA device: cut ahead by a thread into pinned memory; cut into it when it is needed; or
copied from ordinary memory, for which the host waits."""


class Stage(IntEnum):
    """When a toggle is entered; the lower first, and left in reverse. Flags of the process come before all."""

    MODULES = 1  # the model's modules and weights
    COMPILE = 2  # the model as a whole
    LOOP = 3  # autocast, scaler, optimizer, step


@dataclass(slots=True, kw_only=True)
class Run:
    """What a toggle may change: everything that one training step or one decoded token uses.

    ``training.train_step`` and ``generation.GenerationLoop`` use these fields and nothing else.
    """

    config: RunConfig
    device: torch.device
    model: GPT2LMHeadModel
    optimizer: torch.optim.Optimizer | None = None
    """None in generation."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Makes the context that a forward pass runs in."""
    scaler: torch.amp.GradScaler | None = None
    clips_in_update: bool = False
    """Whether the optimizer's kernel shortens the gradients, and not a pass of their own."""
    micro_batches: int = 1
    """Equal parts of a batch that training takes one after another before it updates the weights."""
    data_loading: DataLoading = "prefetch"
    reads_every_loss: bool = False
    """Whether training reads each step's loss at once, for which the host waits until the device has done the step."""
    kv_cache: Literal["dynamic", "off", "static"] = "dynamic"
    """What generation keeps of the tokens that it has seen."""
    decoder: Callable[[Run, Rows], Decoder] | None = None
    """Makes what computes the logits of the next token; None: transformers' own forward pass."""
    graphed: bool = False
    """Whether a training step, or a token of generation, is recorded as a CUDA graph and replayed."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What a toggle wants back when it is entered again within the same run, by its name."""


class Decoder(Protocol):
    """Gives the logits (B, V) of the next token of each row of the ``Rows`` that it was made for."""

    def reach(self, slot: int) -> int:
        """How many slots ``decode`` looks at when the newest token lies in ``slot``: one CUDA graph serves them all."""
        ...

    def rewind(self, slot: int) -> None:
        """Forget the tokens from ``slot`` on; ``decode`` comes next, for that slot, or ``prefill``."""
        ...

    def prefill(self) -> Tensor:
        """After each row's prompt; what was seen before is forgotten."""
        ...

    def decode(self, slot: int) -> Tensor:
        """After the newest token, which lies in ``slot``; all before it have been seen."""
        ...


@runtime_checkable
class ChoosingDecoder(Decoder, Protocol):
    """A decoder that has a faster way to the likeliest token than its logits."""

    def append_likeliest(self, slot: int, vocabulary: int) -> None:
        """``decode``, and each row's likeliest of the first ``vocabulary`` tokens appended to the ``Rows``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One position of a toggle."""

    id: str
    label: str
    """As the panel shows it; short."""
    help: str
    """One line: what this position does."""
    workloads: tuple[Workload, ...] = ("train", "generate")
    """Those of the toggle's workloads in which this position can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """``level`` (of the toggle that states it) runs only while toggle ``other`` is at one of ``allowed``."""

    level: str
    other: str
    allowed: tuple[str, ...]
    reason: str
    kinds: tuple[Literal["cuda", "cpu"], ...] = ("cuda", "cpu")
    """The kinds of device on which this holds."""
    workloads: tuple[Workload, ...] = ("train", "generate")
    """The workloads in which this holds."""
    beside: tuple[str, tuple[str, ...]] | None = None
    """A third toggle and those of its levels beside which this holds; None: beside all."""

    def applies(self, level: str, levels: Mapping[str, str]) -> bool:
        """Whether it holds with the toggle that states it at ``level`` and all toggles at ``levels``."""
        return level == self.level and (self.beside is None or levels[self.beside[0]] in self.beside[1])


class Optimization(ABC):
    """One toggle: its words, its levels and how a run is put under it and taken out again.

    A subclass is one file; ``registry.py`` lists it. Everything that shows or runs toggles reads the registry.
    """

    name: ClassVar[str]
    """Key in RunConfig and column in CSV; never the name of a measured column."""
    label: ClassVar[str]
    tier: ClassVar[Tier]
    stage: ClassVar[Stage]
    workloads: ClassVar[tuple[Workload, ...]]
    levels: ClassVar[tuple[Level, ...]]
    """The first one changes nothing."""
    help: ClassVar[str]
    """What it does, in two or three plain sentences."""
    cost: ClassVar[str]
    """What it costs, and when it does nothing."""
    expect: ClassVar[str]
    """What to expect, with the card that it was measured on."""
    source: ClassVar[str]
    """Paper or documentation to read on."""
    code: ClassVar[str]
    """The PyTorch lines that do it, to be lifted into a training script."""
    needs: ClassVar[tuple[Needs, ...]] = ()
    may_cost_process: ClassVar[bool] = False
    """Whether its first steps may end, spoil or hold up the process: a run's state is written to a file before."""
    tolerance: ClassVar[Mapping[str, float]] = {}
    """By level: largest relative error of loss and gradient against fp32 at dropout off; absent: 1e-5."""
    memory_terms: ClassVar[Mapping[str, MemoryTerms]] = {}
    """By level, the first included: what it means for the memory of a training step; absent: nothing."""
    proof: ClassVar[Mapping[str, Callable[[Profile], Evidence]]] = {}
    """By level: what a profile of one step must show where it ran. Pure; a level left out counts as not proven."""

    def unavailable(self, level: str, device: DeviceInfo) -> str | None:
        """Why ``level`` cannot run on ``device``, in words for a tooltip, or None where it can. Pure."""
        return None

    def unfit(self, level: str, config: RunConfig) -> str | None:
        """Why ``level`` cannot run with the other settings of ``config``, or None where it can. Pure."""
        return None

    def process_wide(self, run: Run, level: str) -> AbstractContextManager[None]:
        """The process's flags that ``level`` (never the first one) needs, as they were again on leaving.

        Apart from ``applied``, which changes nothing but the run: two runs that take turns in one process leave each
        other these flags alone, and keep what was compiled or recorded for them.
        """
        return nullcontext()

    @abstractmethod
    def applied(self, run: Run, level: str) -> AbstractContextManager[None]:
        """Put ``run`` under ``level`` (never the first one) on entering; restore it exactly on leaving."""

    def snippet(self, level: str, config: RunConfig) -> Snippet | None:
        """What a script of ``config`` needs for ``level`` (never the first one); None: it cannot be exported yet."""
        return None

    def level_ids(self) -> tuple[str, ...]:
        return tuple(level.id for level in self.levels)

    def level(self, id: str) -> Level:
        """The level with this id.

        Raises:
            ValueError: there is none; the message lists those there are.
        """
        for level in self.levels:
            if level.id == id:
                return level
        raise ValueError(f"{self.name} has no level {id!r}; allowed: {', '.join(self.level_ids())}")
