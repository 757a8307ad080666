"""What the lab's rows come to: one sentence an experiment, made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from explorer.results.lab import OPERATIONS, Case, LabRow
from explorer.results.words import Say

GIB = 2**30
MIB = 2**20
NAMES: Mapping[str, str] = {
    "hf": "transformers' own",
    "compile": "torch.compile",
    "triton": "ours",
    "strided_copied": "strided copied",
    "transposed_copied": "transposed copied",
    "no_wait": "no wait",
    "item_each_step": "item each step",
}
"""Variants that are not called by their own name."""


def lab_words(rows: Sequence[LabRow], say: Say = str.format) -> list[str]:
    """A sentence for each operation that has something to tell, in the operations' order."""
    found = []
    for operation in OPERATIONS:
        some = [row for row in rows if row.case.operation == operation]
        words = _sentence(operation, some, say)
        if words:
            found.append(words)
    return found


def name_of(variant: str) -> str:
    return NAMES.get(variant, variant)


def _sentence(operation: str, rows: Sequence[LabRow], say: Say) -> str:
    match operation:
        case "attention" | "attention_backward":
            return _attention(rows, say)
        case "attention_support":
            return _support(rows, say)
        case "layout":
            return _layout(rows, say)
        case "small_operations":
            return _small_operations(rows, say)
        case "item":
            return _item(rows, say)
        case "linear_cross_entropy":
            return _linear_cross_entropy(rows, say)
        case _:
            return _of_ceiling(rows, say)


def _cases(rows: Sequence[LabRow]) -> list[tuple[Case, dict[str, LabRow]]]:
    """The rows that were timed, by case; in each by variant, the fastest first."""
    found: dict[Case, dict[str, LabRow]] = {}
    for row in sorted((row for row in rows if row.outcome == "measured"), key=lambda row: row.time_us):
        found.setdefault(row.case, {})[row.variant] = row
    return list(found.items())


def _largest(rows: Sequence[LabRow]) -> tuple[Case, dict[str, LabRow]] | None:
    """The case that moves the most and has been measured, and its variants."""
    cases = _cases(rows)
    return max(cases, key=lambda one: (one[0].moved_bytes, len(one[1]))) if cases else None


def _of_ceiling(rows: Sequence[LabRow], say: Say) -> str:
    """Elementwise and row-wise operations, which memory bounds."""
    largest = _largest(rows)
    if largest is None:
        return ""
    case, by_variant = largest
    told = [
        say(
            "{variant} takes {time} ({share} of a copy's speed)",
            variant=say(name_of(variant)),
            time=_us(row.time_us),
            share=f"{row.gb_per_s / row.copy_gb_per_s:.0%}",
        )
        for variant, row in by_variant.items()
    ]
    return f"{case}: {_and(told, say)}{_times_words(by_variant, say)}."


def _times_words(by_variant: Mapping[str, LabRow], say: Say) -> str:
    """How much faster the fastest is than the slowest."""
    fastest, *_, slowest = (*by_variant.values(), *by_variant.values())
    if fastest is slowest:
        return ""
    return say(
        "; {fastest} is {times}x as fast as {slowest}",
        fastest=say(name_of(fastest.variant)),
        times=f"{slowest.time_us / fastest.time_us:.2f}",
        slowest=say(name_of(slowest.variant)),
    )


def _linear_cross_entropy(rows: Sequence[LabRow], say: Say) -> str:
    largest = _largest(rows)
    if largest is None:
        return ""
    case, by_variant = largest
    told = []
    for variant, row in by_variant.items():
        name, time = say(name_of(variant)), _us(row.time_us)
        if row.peak_bytes >= 0:
            size = f"{row.peak_bytes / GIB:.2f}"
            told.append(say("{variant} takes {time} and {size} GiB", variant=name, time=time, size=size))
        else:
            told.append(say("{variant} takes {time}", variant=name, time=time))
    what = _and(told, say) + _times_words(by_variant, say)
    return say("{case}, loss and gradients: {what}.", case=case, what=what)


def _attention(rows: Sequence[LabRow], say: Say) -> str:
    cases = _cases(rows)
    if not cases:
        return ""
    # Where the most variants ran side by side, the longest such text.
    case, by_variant = max(cases, key=lambda one: (len(one[1]), one[0].shape[2]))
    told = [f"{say(name_of(variant))} {_us(row.time_us)}" for variant, row in by_variant.items()]
    words = f"{case}: {_and(told, say)}"
    flash, ours = by_variant.get("flash"), by_variant.get("triton")
    if flash is not None and ours is not None:
        words += say("; ours runs at {times}x of flash's speed", times=f"{flash.time_us / ours.time_us:.2f}")
    full = [row for row in rows if row.outcome == "out of memory"]
    if full:
        first = {row.variant: min(r.case.shape[2] for r in full if r.variant == row.variant) for row in full}
        told = [
            say("{variant} from {tokens} tokens on", variant=say(name_of(v)), tokens=tokens)
            for v, tokens in first.items()
        ]
        words += say("; out of memory: {what}", what=_and(told, say))
    return words + "."


def _support(rows: Sequence[LabRow], say: Say) -> str:
    refused = [row for row in rows if row.outcome == "refused"]
    if not rows:
        return ""
    if not refused:
        return say("attention_support: every kernel took every head size, dtype and mask that was asked for.")
    told = []
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant]
        words = _refusals(mine, say)
        name = say(name_of(variant))
        said = (
            say("{variant} refuses {what}", variant=name, what=words)
            if words
            else say("{variant} takes all", variant=name)
        )
        told.append(said)
    return f"attention_support: {'; '.join(told)}."


def _refusals(rows: Sequence[LabRow], say: Say) -> str:
    """What one kernel refuses, by what alone decides it; the rest as a number of cases."""
    said = []
    left = list(rows)
    for what, of in (
        ("", lambda case: case.dtype),
        (say("mask") + " ", lambda case: case.detail),
        (say("head size") + " ", lambda case: str(case.shape[3])),
    ):
        values = dict.fromkeys(of(row.case) for row in left)
        never = [v for v in values if all(row.outcome == "refused" for row in left if of(row.case) == v)]
        if never and len(never) < len(values):
            said.append(what + _and(never, say))
            left = [row for row in left if of(row.case) not in never]
    rest = [row for row in left if row.outcome == "refused"]
    if rest:
        some = say("{count} of the other {all} cases", count=len(rest), all=len(left))
        said.append(say("all") if len(rest) == len(rows) else some)
    return ", ".join(said)


def _layout(rows: Sequence[LabRow], say: Say) -> str:
    largest = _largest(rows)
    if largest is None or "contiguous" not in largest[1]:
        return ""
    case, by_variant = largest
    base = by_variant["contiguous"].time_us
    told = [f"{say(name_of(v))} {row.time_us / base:.2f}x" for v, row in by_variant.items() if v != "contiguous"]
    if not told:
        return ""
    return say(
        "{case}: against contiguous numbers ({time}) GeLU takes {what} as long.",
        case=case,
        time=_us(base),
        what=_and(told, say),
    )


def _small_operations(rows: Sequence[LabRow], say: Say) -> str:
    told = []
    for case, by_variant in sorted(_cases(rows), key=lambda one: one[0].shape):
        eager = by_variant.get("eager")
        if eager is None:
            continue
        others = [
            f"{say(name_of(v))} {eager.time_us / row.time_us:.1f}x" for v, row in by_variant.items() if v != "eager"
        ]
        fast = say(", {what} as fast", what=_and(others, say)) if others else ""
        words = say("on {count} numbers {time} one by one", count=case.shape[0], time=_us(eager.time_us))
        told.append(words + fast)
    return say("small_operations: 24 operations take {what}.", what="; ".join(told)) if told else ""


def _item(rows: Sequence[LabRow], say: Say) -> str:
    told = []
    for case, by_variant in sorted(_cases(rows), key=lambda one: one[0].shape):
        if {"no_wait", "item_each_step"} <= by_variant.keys():
            free, waits = by_variant["no_wait"].time_us, by_variant["item_each_step"].time_us
            told.append(
                say(
                    "{more} of {time} ({share}) at width {width}",
                    more=_us(waits - free),
                    time=_us(free),
                    share=f"{waits / free - 1:+.0%}",
                    width=case.shape[0],
                )
            )
    return say("item: asking for the loss at each step costs {what}.", what=_and(told, say)) if told else ""


def _us(us: float) -> str:
    """Microseconds, or milliseconds from ten thousand on."""
    if not math.isfinite(us):
        return "?"
    return f"{us / 1e3:.1f} ms" if abs(us) >= 1e4 else f"{us:.1f} us"


def _and(parts: Sequence[str], say: Say) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}{say(' and ')}{parts[-1]}"
