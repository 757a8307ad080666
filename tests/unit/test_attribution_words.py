"""The sentences that an attribution comes to, word by word from made times."""

from __future__ import annotations

from explorer.gui.language import catalogue
from explorer.results.attribution import Setting, Times, effects
from explorer.results.attribution_words import attribution_words


def times(step_ms: dict[str, float]) -> dict[Setting, Times]:
    """Eight pairs each; every other pair is 0.1% slower, in both arms alike."""
    base = [step_ms[""] * (1 + pair % 2 / 1000) for pair in range(8)]
    found = {}
    for names, ms in step_ms.items():
        if names:
            found[frozenset(names.split())] = (base, [ms * (1 + pair % 2 / 1000) for pair in range(8)])
    return found


def test_that_nine_percent_alone_and_none_under_compile_is_said_in_these_words() -> None:
    made = times({"": 109.0, "gelu=triton": 100.0, "compile=model": 87.2, "gelu=triton compile=model": 87.2})
    found = effects(made, ("gelu=triton", "compile=model"))
    assert attribution_words(found, floor=0.005) == [
        "gelu=triton gives +9.0% (+9.0% to +9.0%) alone, no difference shown (+0.0% to +0.0%) beside compile=model.",
        "compile=model gives +25.0% (+25.0% to +25.0%) alone, +14.7% (+14.7% to +14.7%) beside gelu=triton.",
    ]


def test_that_of_three_each_is_told_beside_each_other_one_and_beside_all() -> None:
    made = times({"": 100, "a": 80, "b": 50, "c": 125, "a b": 50, "a c": 100, "b c": 61.5, "a b c": 41})
    told = attribution_words(effects(made, ("a", "b", "c")), floor=0.005)
    assert told[0] == (
        "a gives +25.0% (+25.0% to +25.0%) alone, no difference shown (+0.0% to +0.0%) beside b, "
        "+25.0% (+25.0% to +25.0%) beside c, +50.0% (+50.0% to +50.0%) beside all others."
    )
    assert told[2].startswith("c gives -20.0% (-20.0% to -20.0%) alone, ")
    assert len(told) == 3


def test_that_every_sentence_has_chinese_words() -> None:
    said: list[str] = []

    def say(words: str, **values: object) -> str:
        said.append(words)
        return words.format(**values)

    made = times({"": 109.0, "a": 100.0, "b": 80.0, "a b": 80.0})
    attribution_words(effects(made, ("a", "b")), floor=0.005, say=say)
    attribution_words(
        effects(times({"": 9, "a": 8, "b": 7, "c": 6, "a b": 5, "a c": 5, "b c": 5, "a b c": 4}), "abc"),
        floor=0.0,
        say=say,
    )
    missing = set(said) - catalogue("zh_CN").keys()
    assert not missing, missing
