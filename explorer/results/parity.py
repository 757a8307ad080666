"""Parity: how far a configuration's numbers lie from float32's, and how far they may.

Three arms do the same work from the same weights and batches: the reference (float32, every toggle at its first
level), the yardstick (torch's own path in the precision asked for) and the configuration asked for. In float32 there
is a fourth, exact one: the reference's first pass once more in float64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["logits", "largest logit", "text", "block", "loss", "gradient", "direction"]
"""What is compared, each as a plain number that is 0 where nothing differs:
logits: of the first sequence at the first step, or of the prompt: norm of the difference over the norm.
largest logit: the largest difference of one of these logits over the largest logit.
text: logits along the reference's greedy text, as norms, from the cache.
block: the output of one transformer block in that first pass, as norms.
loss: the largest difference over all steps, over the reference's loss.
gradient: of one parameter, or of all together (no name), at the first step, as norms.
direction: the angle between two such gradients in radians; its cosine is shown."""

Key = tuple[Kind, str]
"""What is compared, and of which block or parameter."""

TIMES = 2.0
"""A configuration may err this many times as much as torch's own path in its precision."""
FLOOR = 1e-5
"""What any difference may be besides: float32's own rounding, where torch's own path may even agree to the last bit.

Measured between float32 paths (explicit and fused attention, unfused and fused GeLU; 2 to 6 layers, widths 32 and
256, random weights): logits, blocks and gradients within 6e-7, the loss over 12 steps at a learning rate of 5e-4 within
3e-6. TF32, which rounds as float16 does, differs by 2e-4 and more there."""

PARITY_COLUMNS = (
    "parity_ok",
    "logits_rel_error",
    "grad_cosine_min",
    "grad_rel_error_max",
    "loss_diff_max",
    "first_divergence",
    "perplexity",
    "perplexity_float32",
    "perplexity_ratio",
)

_WORDS: Mapping[Kind, str] = {
    "logits": "logits",
    "largest logit": "largest difference of a logit",
    "text": "logits along the greedy text",
    "block": "output of {where}",
    "loss": "loss over the steps",
    "gradient": "gradient of {where}",
    "direction": "gradient's direction of {where}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One comparison with the reference. Infinite where the arm's number was not finite."""

    kind: Kind
    where: str = ""
    """The block or parameter; empty for the model as a whole."""
    value: float
    """Of the configuration asked for."""
    yardstick: float
    """Of torch's own path."""
    allowed: float

    @property
    def share(self) -> float:
        """value / allowed: above 1 is out of tolerance."""
        return self.value / self.allowed

    @property
    def ok(self) -> bool:
        return self.value <= self.allowed

    def __str__(self) -> str:
        what = _WORDS[self.kind].format(where=self.where or "all parameters")
        unit = " rad" if self.kind == "direction" else ""
        times = f"{self.share:.3g} of" if self.ok else f"{self.share:.3g} times"
        return (
            f"{what}: off by {self.value:.2g}{unit}, {times} the {self.allowed:.2g} allowed "
            f"(torch's own path: {self.yardstick:.2g})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where an arm ended because a number was not finite."""

    step: int
    """Training step or new token, from 0."""
    cause: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What one arm showed, step by step; training's fields are empty in generation, and the other way round."""

    losses: tuple[float, ...] = ()
    """Up to the breakdown, if there was one."""
    grad_norms: tuple[float, ...] = ()
    """Before clipping, and unscaled."""
    loss_scales: tuple[float, ...] = ()
    """fp16: the scale that each step was taken with."""
    skipped: tuple[int, ...] = ()
    """fp16: the step of each attempt whose gradient overflowed. It was done again with half the scale, on the same
    batch, so that all arms take the same updates."""
    text: str = ""
    """Greedy text after the prompt."""
    perplexity: float | None = None
    """Of held-out text: e to the mean loss, in nats a token. None: not computed, or not finite."""
    breakdown: Breakdown | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """A configuration against float32 and against torch's own path in its precision."""

    measures: tuple[Measure, ...]
    reference: Arm
    yardstick: Arm
    asked: Arm
    batch: int
    """Sequences a step; fewer than asked for where the reference did not fit into memory."""
    logits_max_abs: float
    """Largest difference of a logit from the reference's, as it is."""
    new_tokens: int = 0
    """Tokens of greedy text that were compared."""
    first_divergence: int | None = None
    """The first new token, from 0, in which the greedy text differs from the reference's; None: in none of them.
    Not judged: where two tokens are nearly as likely, rounding alone decides."""

    @property
    def ok(self) -> bool:
        """Whether every measure is within what is allowed, and neither this arm nor the reference broke down."""
        broke = self.asked.breakdown or self.reference.breakdown
        return broke is None and all(measure.ok for measure in self.measures)

    @property
    def worst(self) -> str:
        """In words: what broke, or else the measure furthest beyond (or nearest to) what is allowed."""
        if self.reference.breakdown is not None:
            return f"nothing to compare with: float32 itself stopped at {self.reference.breakdown}"
        if self.asked.breakdown is not None:
            return f"stopped at {self.asked.breakdown}"
        words = str(max(self.measures, key=lambda measure: measure.share))
        first = next((m.where for m in self.measures if m.kind == "block" and not m.ok), None)
        return words if first is None else f"{words}; the forward pass is off from {first} on"

    @property
    def perplexity_ratio(self) -> float | None:
        """Of held-out text, over the reference's: 1.01 is 1% worse. Not judged. None: one of them is not known."""
        asked, exact = self.asked.perplexity, self.reference.perplexity
        return asked / exact if asked is not None and exact is not None else None

    def of(self, kind: Kind) -> tuple[Measure, ...]:
        """The measures of one kind, in the model's order."""
        return tuple(measure for measure in self.measures if measure.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, infinity as None; ``from_dict`` reads it back."""
        values = dataclasses.asdict(self)
        values["measures"] = [{n: _plain(v) for n, v in measure.items()} for measure in values["measures"]]
        values["logits_max_abs"] = _plain(self.logits_max_abs)
        for name in ("reference", "yardstick", "asked"):
            values[name] = {n: list(v) if isinstance(v, tuple) else v for n, v in values[name].items()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Parity:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing, unknown or of the wrong kind; the message says which.
        """
        try:
            arms = {name: _arm(values[name]) for name in ("reference", "yardstick", "asked")}
            measures = tuple(_measure(measure) for measure in values["measures"])
            return cls(**{**values, **arms, "measures": measures, "logits_max_abs": _number(values["logits_max_abs"])})
        except KeyError as error:
            raise ValueError(f"the parity lacks {error}") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"the parity cannot be read: {error}") from error


def judge(
    asked: Mapping[Key, float],
    yardstick: Mapping[Key, float],
    *,
    descent: float = 0.0,
    rounding: Mapping[Key, float] | None = None,
) -> tuple[Measure, ...]:
    """Each error beside torch's own and what is allowed: TIMES torch's own, and FLOOR.

    Two errors are small by chance now and then, so torch's own counts as at least: for one parameter's gradient, that
    of the gradient as a whole; for the loss over the steps, the whole gradient's times ``descent``, since a gradient
    that is off by a hundredth makes the loss fall a hundredth more or less. What of torch's own is missing or not
    finite counts as 0, and the floor alone rules.

    In float32 torch's own path is often the very one that is asked for, and must not excuse itself. There its error
    counts at most as what float32's ``rounding`` does to this model: two paths that are both as far from the exact
    numbers as the reference is differ by twice that at most. How far that is, is a matter of the weights: a trained
    model's attention gradients cancel, and were off by 3e-4 where random weights' were by 5e-7. TF32, which rounds
    8192 times as coarsely, stands out of either.

    Args:
        asked: how far the configuration asked for is from the reference.
        yardstick: how far torch's own path is.
        descent: how far the reference's loss fell, as a share of where it was highest.
        rounding: in float32, how far the reference is from the exact numbers. The loss over the steps has none:
            rounding grows from step to step.
    """
    own = {key: value for key, value in yardstick.items() if math.isfinite(value)}
    measures = []
    for (kind, where), value in asked.items():
        least, most = own.get((kind, ""), 0.0), math.inf
        if kind == "loss":
            least = own.get(("gradient", ""), 0.0) * descent
        elif rounding is not None:
            most = max(rounding.get((kind, where), 0.0), rounding.get((kind, ""), 0.0))
        size = min(max(own.get((kind, where), 0.0), least), most)
        measures.append(
            Measure(
                kind=kind,
                where=where,
                value=value,
                yardstick=yardstick.get((kind, where), math.inf),
                allowed=TIMES * size + FLOOR,
            )
        )
    return tuple(measures)


def with_text(training: Parity, text: Parity) -> Parity:
    """``training``'s parity with what ``text``, of the same configuration's generation, showed of greedy text."""
    return dataclasses.replace(
        training,
        measures=training.measures + text.of("text"),
        asked=_writing(training.asked, text.asked),
        reference=_writing(training.reference, text.reference),
        yardstick=_writing(training.yardstick, text.yardstick),
        new_tokens=text.new_tokens,
        first_divergence=text.first_divergence,
    )


def _writing(trained: Arm, wrote: Arm) -> Arm:
    return dataclasses.replace(trained, text=wrote.text, perplexity=wrote.perplexity)


def first_difference(reference: Sequence[object], other: Sequence[object]) -> int | None:
    """The first place, from 0, at which two texts, or their token ids, differ; None where they are the same.

    Where one goes on beyond the other's end, that is the end's place.
    """
    for place, (one, two) in enumerate(zip(reference, other, strict=False)):
        if one != two:
            return place
    return None if len(reference) == len(other) else min(len(reference), len(other))


def parity_cells(parity: Parity | None) -> dict[str, str | int | float | bool | None]:
    """The columns that a comparison's CSV has of parity; None where the workload has no such number, or no check was.

    ``loss_diff_max`` is in the loss's own unit (nats a token), ``first_divergence`` counts new tokens from 0 and is
    "none" where the whole text is the same. ``perplexity`` is that of the configuration, beside float32's.
    """
    if parity is None:
        return dict.fromkeys(PARITY_COLUMNS)
    angles = [measure.value for measure in parity.of("direction")]
    pairs = list(zip(parity.reference.losses, parity.asked.losses, strict=False))
    divergence = None
    if parity.new_tokens:
        divergence = "none" if parity.first_divergence is None else parity.first_divergence
    return {
        "parity_ok": parity.ok,
        "logits_rel_error": _plain(max(measure.value for measure in parity.of("logits"))),
        "grad_cosine_min": math.cos(max(angles)) if angles and math.isfinite(max(angles)) else None,
        "grad_rel_error_max": _plain(max((m.value for m in parity.of("gradient")), default=math.inf)),
        "loss_diff_max": max((abs(loss - exact) for exact, loss in pairs), default=None),
        "first_divergence": divergence,
        "perplexity": parity.asked.perplexity,
        "perplexity_float32": parity.reference.perplexity,
        "perplexity_ratio": parity.perplexity_ratio,
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> float:
    return math.inf if value is None else float(value)


def _measure(values: Mapping[str, Any]) -> Measure:
    if values["kind"] not in get_args(Kind):
        raise ValueError(f"a measure's kind is {values['kind']!r}; allowed: {', '.join(get_args(Kind))}")
    numbers = {name: _number(values[name]) for name in ("value", "yardstick", "allowed")}
    return Measure(**{**values, **numbers})


def _arm(values: Mapping[str, Any]) -> Arm:
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    breakdown = known["breakdown"]
    return Arm(**{**known, "breakdown": None if breakdown is None else Breakdown(**breakdown)})
