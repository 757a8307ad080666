"""What comparisons of equal and delayed arms come to, in words and rows, by hand."""

from __future__ import annotations

from explorer.gui.language import catalogue
from explorer.results.comparison import RatioInterval
from explorer.results.floor import AgainstItself, Floor
from explorer.results.floor_words import floor_rows, floor_words


def one(ratio: float, reach: float = 0.0005, dropped: int = 0) -> AgainstItself:
    interval = RatioInterval(ratio=ratio, low=ratio - reach, high=ratio + reach, n_pairs=8)
    return AgainstItself(interval=interval, dropped_blocks=dropped, at="2026-12-03T10:00:00+00:00")


FLOOR = Floor(
    comparisons=(one(1.0), one(1.001), one(0.999, dropped=2), one(1.0), one(1.0)),
    delayed={0.02: (one(0.98), one(0.998))},
)


def test_that_equal_and_delayed_arms_are_counted_by_their_verdicts() -> None:
    # Two of five logarithms of 0.001: root mean square 0.000632, times Student's t for 5 of 2.571.
    assert floor_words(FLOOR, 0.0) == [
        "floor: 0.163%, from 5 comparisons of equal arms",
        "of equal arms, the second was called slower in 0 of 5 comparisons, faster in 0; no difference shown in 5, "
        "unsettled 0",
        "2 disturbed blocks were dropped",
    ]
    assert floor_words(FLOOR, 0.02)[1].startswith(
        "delayed by 2.00%, the second arm was called slower in 2 of 2 comparisons"
    )
    few = Floor(comparisons=FLOOR.comparisons[:2])
    assert floor_words(few, 0.0)[0].endswith(
        "from 2 comparisons of equal arms; it takes 5, and until then 0.5% is assumed"
    )


def test_that_each_comparison_is_a_row_under_the_floor_that_holds_now() -> None:
    rows = floor_rows(FLOOR, 0.02)
    assert [(row["comparison"], row["speedup"], row["verdict"]) for row in rows] == [
        (1, 0.98, "slower"),
        (2, 0.998, "slower"),
    ]
    assert {row["floor"] for row in rows} == {FLOOR.measured}


def test_that_all_of_it_has_chinese_words() -> None:
    said: list[str] = []

    def say(words: str, **values: object) -> str:
        said.append(words)
        return words.format(**values)

    for floor in (FLOOR, Floor()):
        for delay in (0.0, 0.02):
            floor_words(floor, delay, say)
    assert not set(said) - catalogue("zh_CN").keys()
