"""What a comparison came to, as a person says it. The verdict itself is results'."""

from __future__ import annotations

from typing import assert_never

from explorer.gui.language import from_below, tr
from explorer.gui.palette import gib
from explorer.results.blocks import ComparisonResult, EndedBy
from explorer.results.checks import Checks, perplexities


def headline(result: ComparisonResult) -> str:
    """The verdict, such as ``B is faster: 1.493x the speed of A (1.471 – 1.512).``"""
    i = result.interval
    ratio, interval = f"{i.ratio:.3f}x", f"{i.low:.3f} – {i.high:.3f}"
    match result.verdict:
        case "faster":
            return tr("B is faster: {ratio} the speed of A ({interval}).", ratio=ratio, interval=interval)
        case "slower":
            return tr("B is slower: {ratio} the speed of A ({interval}).", ratio=ratio, interval=interval)
        case "no difference shown":
            return tr("No difference shown: B has {ratio} the speed of A ({interval}).", ratio=ratio, interval=interval)
        case "unsettled":
            return tr("Unsettled: B has {ratio} the speed of A so far ({interval}).", ratio=ratio, interval=interval)
        case _:
            assert_never(result.verdict)


def details(result: ComparisonResult, *, peak_bytes: tuple[int, int]) -> str:
    """What stands behind it, such as ``12 pairs, settled; 60.66 against 90.55 ms a step; floor 0.50%.``

    ``peak_bytes``: of A and B, what a step needs at its peak; -1: not measured.
    """
    told = [
        tr("{pairs} pairs, {ended}", pairs=result.interval.n_pairs, ended=_ended(result.ended_by)),
        tr("{b} against {a} ms a step", b=f"{result.b_step_ms:.2f}", a=f"{result.a_step_ms:.2f}"),
    ]
    if min(peak_bytes) > 0:
        told.append(tr("{b} against {a} in a step", b=gib(peak_bytes[1]), a=gib(peak_bytes[0])))
    if result.dropped_blocks:
        told.append(tr("{count} disturbed blocks dropped", count=result.dropped_blocks))
    floor = f"{result.floor:.2%}"
    told.append(
        tr("floor {floor}", floor=floor) if result.floor_measured else tr("floor {floor}, assumed", floor=floor)
    )
    return f"{'; '.join(told)}."


def checks_words(checks: tuple[Checks, Checks]) -> str:
    """Parity and proof of A and B in one line, and what the difference means for the text."""
    a, b = checks
    told = tr(
        "Numbers: A {a}, B {b}. Toggles: A {proof_a}, B {proof_b}.",
        a=from_below(a.parity_verdict),
        b=from_below(b.parity_verdict),
        proof_a=from_below(a.proof_verdict),
        proof_b=from_below(b.proof_verdict),
    )
    both = perplexities(a, b)
    if both is None:
        return told
    ratio = f"{both[1] / both[0]:.4f}"
    a_words, b_words = (f"{value:.5g}" for value in both)
    return f"{told} " + tr("Perplexity of held-out text: A {a}, B {b} ({ratio}x).", a=a_words, b=b_words, ratio=ratio)


def against_float32(letter: str, checks: Checks) -> str:
    """Where greedy text of arm ``letter`` parts from float32's, and how far its logits are off; empty: not known."""
    parity = checks.parity
    if parity is None or not parity.new_tokens:
        return ""
    off = f"{max((measure.value for measure in parity.of('logits')), default=float('nan')):.2g}"
    largest = f"{parity.logits_max_abs:.2g}"
    if parity.first_divergence is None:
        return tr(
            "{letter} and float32: the same greedy text for {count} tokens; logits off by {off}, one by {largest}.",
            letter=letter,
            count=parity.new_tokens,
            off=off,
            largest=largest,
        )
    return tr(
        "{letter} and float32: greedy text parts at token {token} of {count}; logits off by {off}, one by {largest}.",
        letter=letter,
        token=parity.first_divergence + 1,
        count=parity.new_tokens,
        off=off,
        largest=largest,
    )


def _ended(ended_by: EndedBy) -> str:
    match ended_by:
        case "settled":
            return tr("settled")
        case "budget":
            return tr("budget spent")
        case "stopped":
            return tr("stopped")
        case _:
            assert_never(ended_by)
