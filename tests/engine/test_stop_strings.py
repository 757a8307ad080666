from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from explorer.engine.stop_strings import StopStrings


def cut(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the stop string that is whole first, letter by letter; of two that end there the longer."""
    for end in range(len(text) + 1):
        whole = [stop for stop in stops if text[:end].endswith(stop)]
        if whole:
            return text[: end - max(map(len, whole))]
    return text


def pieces(text: str, draw: random.Random) -> Iterator[str]:
    while text:
        length = draw.randint(0, 4)
        yield text[:length]
        text = text[length:]


@pytest.mark.parametrize("stops", [["\n\n"], ["aab"], ["ab", "b"], ["b", "abc"], ["abab", "ba\n"], []])
def test_that_a_text_ends_before_the_first_stop_string_however_it_is_cut_into_pieces(stops: list[str]) -> None:
    draw = random.Random(7)
    ended = 0
    for _ in range(500):
        text = "".join(draw.choice("aabc\n") for _ in range(draw.randint(0, 30)))
        watch = StopStrings(stops)
        shown = ""
        for piece in pieces(text, draw):
            shown += watch.push(piece)
            assert cut(text, stops).startswith(shown), "nothing that was shown is taken back"
        assert shown + watch.finish() == cut(text, stops)
        assert watch.found == any(stop in text for stop in stops)
        ended += watch.found
    assert ended > 100 or not stops


def test_that_no_more_is_kept_back_than_could_begin_a_stop_string() -> None:
    watch = StopStrings(["\ndef ", "\nclass "])
    assert watch.push("return x\n") == "return x"
    assert watch.push("\ncl") == "\n"
    assert watch.push("ean") == "\nclean"
    assert watch.finish() == ""


def test_that_stop_strings_changed_within_a_text_are_looked_for_from_then_on() -> None:
    watch = StopStrings(["###"])
    assert watch.push("a.b#") == "a.b"
    watch.look_for(["#!"])
    assert watch.push(".!c#!d") == "#.!c"
    assert watch.found
