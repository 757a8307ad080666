"""What the lab's rows come to: one sentence an experiment, made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from explorer.results.lab import OPERATIONS, Case, LabRow

GIB = 2**30
MIB = 2**20
NAMES: Mapping[str, str] = {"hf": "transformers' own", "torch": "torch", "compile": "torch.compile", "triton": "ours"}
"""Variants that are not called by their own name."""


def lab_words(rows: Sequence[LabRow]) -> list[str]:
    """A sentence for each operation that has something to tell, in the operations' order."""
    found = []
    for operation in OPERATIONS:
        some = [row for row in rows if row.case.operation == operation]
        words = _sentence(operation, some)
        if words:
            found.append(words)
    return found


def name_of(variant: str) -> str:
    return NAMES.get(variant, variant.replace("_", " "))


def _sentence(operation: str, rows: Sequence[LabRow]) -> str:
    match operation:
        case "attention" | "attention_backward":
            return _attention(operation, rows)
        case "attention_support":
            return _support(rows)
        case "layout":
            return _layout(rows)
        case "small_operations":
            return _small_operations(rows)
        case "item":
            return _item(rows)
        case "linear_cross_entropy":
            return _linear_cross_entropy(rows)
        case _:
            return _of_ceiling(rows)


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


def _of_ceiling(rows: Sequence[LabRow]) -> str:
    """Elementwise and row-wise operations, which memory bounds."""
    largest = _largest(rows)
    if largest is None:
        return ""
    case, by_variant = largest
    told = [
        f"{name_of(variant)} takes {_us(row.time_us)} ({row.ceiling_fraction:.0%} of a copy's speed)"
        for variant, row in by_variant.items()
    ]
    return f"{case}: {_and(told)}{_times_words(by_variant)}."


def _times_words(by_variant: Mapping[str, LabRow]) -> str:
    """How much faster the fastest is than the slowest."""
    fastest, *_, slowest = (*by_variant.values(), *by_variant.values())
    if fastest is slowest:
        return ""
    times = slowest.time_us / fastest.time_us
    return f"; {name_of(fastest.variant)} is {times:.2f}x as fast as {name_of(slowest.variant)}"


def _linear_cross_entropy(rows: Sequence[LabRow]) -> str:
    largest = _largest(rows)
    if largest is None:
        return ""
    case, by_variant = largest
    told = [
        f"{name_of(variant)} takes {_us(row.time_us)}"
        + (f" and {row.peak_bytes / GIB:.2f} GiB" if row.peak_bytes >= 0 else "")
        for variant, row in by_variant.items()
    ]
    return f"{case}, loss and gradients: {_and(told)}{_times_words(by_variant)}."


def _attention(operation: str, rows: Sequence[LabRow]) -> str:
    cases = _cases(rows)
    if not cases:
        return ""
    # Where the most variants ran side by side, the longest such text.
    case, by_variant = max(cases, key=lambda one: (len(one[1]), one[0].shape[2]))
    told = [f"{name_of(variant)} {_us(row.time_us)}" for variant, row in by_variant.items()]
    words = f"{case}: {_and(told)}"
    flash, ours = by_variant.get("flash"), by_variant.get("triton")
    if flash is not None and ours is not None:
        words += f"; ours runs at {flash.time_us / ours.time_us:.2f}x of flash's speed"
    full = [row for row in rows if row.outcome == "out of memory"]
    if full:
        first = {row.variant: min(r.case.shape[2] for r in full if r.variant == row.variant) for row in full}
        words += "; out of memory: " + _and([f"{name_of(v)} from {tokens} tokens on" for v, tokens in first.items()])
    return words + "."


def _support(rows: Sequence[LabRow]) -> str:
    refused = [row for row in rows if row.outcome == "refused"]
    if not rows:
        return ""
    if not refused:
        return "attention_support: every kernel took every head size, dtype and mask that was asked for."
    told = []
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant]
        words = _refusals(mine)
        told.append(f"{name_of(variant)} refuses {words}" if words else f"{name_of(variant)} takes all")
    return f"attention_support: {'; '.join(told)}."


def _refusals(rows: Sequence[LabRow]) -> str:
    """What one kernel refuses, by what alone decides it; the rest as a number of cases."""
    said = []
    left = list(rows)
    for what, of in (
        ("", lambda case: case.dtype),
        ("mask ", lambda case: case.detail),
        ("head size ", lambda case: str(case.shape[3])),
    ):
        values = dict.fromkeys(of(row.case) for row in left)
        never = [v for v in values if all(row.outcome == "refused" for row in left if of(row.case) == v)]
        if never and len(never) < len(values):
            said.append(what + _and(never))
            left = [row for row in left if of(row.case) not in never]
    rest = [row for row in left if row.outcome == "refused"]
    if rest:
        said.append("all" if len(rest) == len(rows) else f"{len(rest)} of the other {len(left)} cases")
    return ", ".join(said)


def _layout(rows: Sequence[LabRow]) -> str:
    largest = _largest(rows)
    if largest is None or "contiguous" not in largest[1]:
        return ""
    case, by_variant = largest
    base = by_variant["contiguous"].time_us
    told = [f"{name_of(v)} {row.time_us / base:.2f}x" for v, row in by_variant.items() if v != "contiguous"]
    return f"{case}: against contiguous numbers ({_us(base)}) GeLU takes {_and(told)} as long."


def _small_operations(rows: Sequence[LabRow]) -> str:
    told = []
    for case, by_variant in sorted(_cases(rows), key=lambda one: one[0].shape):
        eager = by_variant.get("eager")
        if eager is None:
            continue
        others = [f"{name_of(v)} {eager.time_us / row.time_us:.1f}x" for v, row in by_variant.items() if v != "eager"]
        fast = f", {_and(others)} as fast" if others else ""
        told.append(f"on {case.shape[0]} numbers {_us(eager.time_us)} one by one{fast}")
    return f"small_operations: 24 operations take {'; '.join(told)}." if told else ""


def _item(rows: Sequence[LabRow]) -> str:
    told = []
    for case, by_variant in sorted(_cases(rows), key=lambda one: one[0].shape):
        if {"no_wait", "item_each_step"} <= by_variant.keys():
            free, waits = by_variant["no_wait"].time_us, by_variant["item_each_step"].time_us
            told.append(f"{_us(waits - free)} of {_us(free)} ({waits / free - 1:+.0%}) at width {case.shape[0]}")
    return f"item: asking for the loss at each step costs {_and(told)}." if told else ""


def _us(us: float) -> str:
    """Microseconds, or milliseconds from ten thousand on."""
    if not math.isfinite(us):
        return "?"
    return f"{us / 1e3:.1f} ms" if abs(us) >= 1e4 else f"{us:.1f} us"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
