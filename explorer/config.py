"""RunConfig: the whole of what a person asked for, and the only statement of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Workload = Literal["train", "generate"]
Weights = Literal["random", "bundled", "pretrained"]

# Inclusive bounds, in the field's own unit. The window's spin boxes and the command line both read these.
LIMITS: Mapping[str, tuple[float, float]] = {
    "batch": (1, 1024),
    "seq": (8, 1024),
    "seed": (0, 2**31 - 1),
    "lr": (0.0, 1.0),
    "weight_decay": (0.0, 10.0),
    "grad_clip": (0.0, 1e6),
    "init_scale": (1.0, 2.0**32),
    "sample_every": (0, 1_000_000),
    "max_new_tokens": (1, 1024),
    "temperature": (0.0, 100.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 10.0),
}
LEAST_TEMPERATURE = 1e-6
"""But for 0. Logits divided by less could pass float32's largest number, and NaN would choose the token."""
MOST_STOPS = 16
MOST_PROMPTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One configuration of one run.

    Raises:
        ValueError: a field is outside ``LIMITS`` or not one of its allowed words; the message names the
            field, the value and what is allowed.
    """

    workload: Workload = "train"
    model: str = "gpt2"
    """A name in ``explorer.models.MODELS``, or a folder saved by transformers."""
    weights: Weights = "random"
    """random: drawn from ``seed``. bundled: shipped with the project (mini only). pretrained: folder or Hub cache."""
    device: str = "auto"
    """auto (the first CUDA device, else the CPU), cpu, or cuda:N."""
    text: str = "python"
    """Training text: python (the running Python's documentation and library), wikitext-2, or a file's path."""
    batch: int = 8
    """Sequences a step."""
    seq: int = 1024
    """Tokens a training sequence."""
    seed: int = 0
    lr: float = 5e-5
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    """Largest gradient norm; 0 turns clipping off."""
    init_scale: float = 65536.0
    """First loss scale of fp16's GradScaler."""
    sample_every: int = 0
    """In training: steps after which the model writes a text from the prompt, again and again; 0: never."""
    prompt: str = "def "
    more_prompts: tuple[str, ...] = ()
    """In generation: the batch's sequences begin with ``prompt`` and these by turns; see ``prompts``."""
    max_new_tokens: int = 128
    temperature: float = 0.8
    """0 picks the likeliest token (greedy)."""
    top_k: int = 50
    """Sample among the k likeliest tokens; 0 turns it off."""
    top_p: float = 1.0
    """Sample among the likeliest tokens that together reach this probability; 1 turns it off."""
    repetition_penalty: float = 1.0
    """Tokens of the context lose by it: their positive logits are divided by it, their negative ones multiplied; 1
    turns it off."""
    stop: tuple[str, ...] = ()
    """Strings before the first of which the text ends."""
    levels: tuple[tuple[str, str], ...] = ()
    """Toggles that are not at their first level, as (name, level), sorted by name."""

    def __post_init__(self) -> None:
        for name, allowed in (("workload", get_args(Workload)), ("weights", get_args(Weights))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            whole = isinstance(LIMITS_DEFAULTS[name], int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(f"{name} is {value!r}; it must be {'a whole number' if whole else 'a number'}")
            if not (math.isfinite(value) and low <= value <= high):
                raise ValueError(f"{name} is {value!r}; allowed: {low:g} to {high:g}")
        if 0 < self.temperature < LEAST_TEMPERATURE:
            most = LIMITS["temperature"][1]
            raise ValueError(
                f"temperature is {self.temperature!r}; allowed: 0 (greedy), or {LEAST_TEMPERATURE:g} to {most:g}"
            )
        if not self.model:
            raise ValueError("model is empty; give a name or a folder")
        if not isinstance(self.stop, (tuple, list)) or not all(isinstance(s, str) and s for s in self.stop):
            raise ValueError(f"stop is {self.stop!r}; it must be strings, none of them empty")
        if len(self.stop) > MOST_STOPS:
            raise ValueError(f"stop has {len(self.stop)} strings; allowed: {MOST_STOPS} at most")
        object.__setattr__(self, "stop", tuple(self.stop))
        if not isinstance(self.more_prompts, (tuple, list)) or not all(isinstance(p, str) for p in self.more_prompts):
            raise ValueError(f"more_prompts is {self.more_prompts!r}; it must be strings")
        if len(self.more_prompts) >= MOST_PROMPTS:
            raise ValueError(f"there are {len(self.more_prompts) + 1} prompts; allowed: {MOST_PROMPTS} at most")
        object.__setattr__(self, "more_prompts", tuple(self.more_prompts))
        names = [name for name, _ in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"a toggle is set twice: {', '.join(names)}")
        object.__setattr__(self, "levels", tuple(sorted((str(n), str(v)) for n, v in self.levels)))

    @property
    def prompts(self) -> tuple[str, ...]:
        """Those that sequences begin with: sequence i with the (i mod their number)th. Each one's text is shown."""
        return (self.prompt, *self.more_prompts)[: self.batch]

    def level(self, name: str) -> str | None:
        """The level asked for of toggle ``name``, or None where it is left at its first."""
        return dict(self.levels).get(name)

    def with_level(self, name: str, level: str | None) -> RunConfig:
        """This configuration with toggle ``name`` at ``level``; None puts it back to its first."""
        levels = {n: v for n, v in self.levels if n != name}
        if level is not None:
            levels[name] = level
        return dataclasses.replace(self, levels=tuple(sorted(levels.items())))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["stop"] = list(self.stop)
        values["more_prompts"] = list(self.more_prompts)
        values["levels"] = dict(self.levels)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: an unknown field, or a value that is not allowed.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(unknown)}")
        fields = dict(values)
        if "levels" in fields:
            if not isinstance(fields["levels"], Mapping):
                raise ValueError(f"levels is {fields['levels']!r}; it must map a toggle to its level")
            fields["levels"] = tuple(fields["levels"].items())
        return cls(**fields)


LIMITS_DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in dataclasses.fields(RunConfig) if f.name in LIMITS}
