"""Numbers of stored runs, as people write them: ``3,5-7``."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 100_000
"""Numbers in one list: a range is written out."""


def parse_numbers(text: str) -> list[int]:
    """The numbers that ``text`` names, each once, in its order.

    Raises:
        ValueError: it is no such list.
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r}: write numbers of runs, such as 3,5-7")
        ends = int(first), int(last or first)
        if ends[0] > ends[1]:
            raise ValueError(f"{part.strip()!r}: a range goes from the smaller number to the larger, such as 5-7")
        if ends[1] - ends[0] + len(numbers) >= MOST:
            raise ValueError(f"{text!r} names more than {MOST:,} runs")
        numbers += range(ends[0], ends[1] + 1)
    return list(dict.fromkeys(numbers))


def in_ranges(numbers: Iterable[int]) -> str:
    """The numbers in rising order, neighbours as ranges: ``1-7, 9``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
