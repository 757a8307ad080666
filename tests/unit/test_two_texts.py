from __future__ import annotations

import dataclasses

import pytest

from explorer.results.sample import Phase, Sample
from explorer.results.text_pair import Written, in_words, written


def token(phase: Phase, step_ms: float) -> Sample:
    return Sample(step=0, segment=0, phase=phase, time_s=0.0, tokens=4, step_ms=step_ms)


def text(words: str) -> Written:
    return Written(text=words, tokens_per_s=None, first_token_ms=None)


def test_that_the_speed_is_of_steady_tokens_or_else_of_those_of_warm_up() -> None:
    first = [token("prefill", 30.0), token("compile", 500.0)]
    warm = [token("warmup", ms) for ms in (8.0, 4.0, 5.0)]
    found = written("x", [*first, *warm])
    assert (found.tokens_per_s, found.first_token_ms) == (pytest.approx(4 / 5e-3), 30.0)
    found = written("x", [*first, *warm, token("steady", 2.0), token("steady", 4.0), token("steady", 2.5)])
    assert found.tokens_per_s == pytest.approx(4 / 2.5e-3)
    assert written("", first).tokens_per_s is None
    assert written("", []).first_token_ms is None


def test_that_the_memory_is_the_most_of_a_decoded_token() -> None:
    def using(phase: Phase, peak: int) -> Sample:
        return dataclasses.replace(token(phase, 4.0), peak_allocated_bytes=peak)

    found = written("x", [using("prefill", 900), using("compile", 800), using("steady", 500), using("warmup", 510)])
    assert found.peak_bytes == 510
    assert written("x", [using("steady", -1)]).peak_bytes is None


def test_that_words_say_where_two_texts_part() -> None:
    assert in_words(text("a + b"), text("a + b")) == "the texts are the same: 5 characters"
    words = in_words(text("x = 1\n" * 300 + 'return "é"' + "z" * 99), text("x = 1\n" * 300 + "re"))
    assert words == 'the texts part after 1,802 characters: A goes on with "turn \\"é\\"zzzzzzzzzzzzzzzz", B with ""'
