"""What comparisons of a configuration with itself come to, in words and as rows."""

from __future__ import annotations

from collections import Counter

from explorer.results.export import Cell
from explorer.results.floor import ASSUMED_FLOOR, FEWEST_COMPARISONS, Floor
from explorer.results.words import Say


def floor_words(floor: Floor, delay: float, say: Say = str.format) -> list[str]:
    """How large the floor is, and what comparisons delayed by the share ``delay`` were called (0: of equal arms)."""
    count = len(floor.comparisons)
    if floor.measured is not None:
        lines = [
            say("floor: {share}, from {count} comparisons of equal arms", share=f"{floor.measured:.3%}", count=count)
        ]
    else:
        lines = [
            say(
                "floor: not known yet, from {count} comparisons of equal arms; it takes {fewest}, and until then "
                "{share} is assumed",
                count=count,
                fewest=FEWEST_COMPARISONS,
                share=f"{ASSUMED_FLOOR:.1%}",
            )
        ]
    some = floor.of(delay)
    called = Counter(floor.verdicts(delay))
    counts = {
        "slower": called["slower"],
        "faster": called["faster"],
        "none": called["no difference shown"],
        "unsettled": called["unsettled"],
        "count": len(some),
    }
    if delay:
        lines.append(
            say(
                "delayed by {share}, the second arm was called slower in {slower} of {count} comparisons, faster in "
                "{faster}; no difference shown in {none}, unsettled {unsettled}",
                share=f"{delay:.2%}",
                **counts,
            )
        )
    else:
        lines.append(
            say(
                "of equal arms, the second was called slower in {slower} of {count} comparisons, faster in {faster}; "
                "no difference shown in {none}, unsettled {unsettled}",
                **counts,
            )
        )
    dropped = sum(one.dropped_blocks for one in some)
    return lines + ([say("{count} disturbed blocks were dropped", count=dropped)] if dropped else [])


def floor_rows(floor: Floor, delay: float) -> list[dict[str, Cell]]:
    """A row a comparison, under the floor that holds now."""
    return [
        {
            "comparison": number,
            "delay": delay,
            "speedup": one.interval.ratio,
            "ci_low": one.interval.low,
            "ci_high": one.interval.high,
            "verdict": called,
            "n_pairs": one.interval.n_pairs,
            "floor": floor.measured,
            "dropped_blocks": one.dropped_blocks,
            "at": one.at,
        }
        for number, (one, called) in enumerate(zip(floor.of(delay), floor.verdicts(delay), strict=True), 1)
    ]
