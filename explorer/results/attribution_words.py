"""What an attribution comes to: one sentence a toggle, made from its effects."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.results.attribution import Effect
from explorer.results.comparison import verdict
from explorer.results.words import Say


def attribution_words(found: Sequence[Effect], *, floor: float, say: Say = str.format) -> list[str]:
    """A sentence for each toggle, in the order of ``found``: what it gives alone, and what beside others.

    Shares of speed: 9% is 1.09 times as fast. What lies within the ``floor``, or whose interval holds nothing, is said
    to show no difference.
    """

    def gives(effect: Effect) -> str:
        i = effect.interval
        ends = say("{low:+z.1%} to {high:+z.1%}", low=i.low - 1, high=i.high - 1)
        shown = verdict(i, floor=floor)
        if shown in ("faster", "slower"):
            return say("{share:+z.1%} ({ends})", share=i.ratio - 1, ends=ends)
        return say("no difference shown ({ends})", ends=ends)

    told = []
    for alone in (effect for effect in found if effect.kind == "alone"):
        (toggle,) = alone.of
        parts = [say("{gives} alone", gives=gives(alone))]
        for effect in found:
            if effect.of[0] != toggle:
                continue
            if effect.kind == "beside another":
                parts.append(say("{gives} beside {other}", gives=gives(effect), other=effect.of[1]))
            elif effect.kind == "beside all others":
                others = [one.of[0] for one in found if one.kind == "alone" and one.of != alone.of]
                name = others[0] if len(others) == 1 else say("all others")
                parts.append(say("{gives} beside {other}", gives=gives(effect), other=name))
        told.append(say("{toggle} gives {parts}.", toggle=toggle, parts=", ".join(parts)))
    return told
