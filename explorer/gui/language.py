"""The words of the window in the person's language.

English literals are the keys of a JSON object in assets/. The standard library reads it without a build step, a change
of it can be read, and a test holds it against the literals of the sources; Qt's own format would need a compiler for
each change, and cannot put values into a sentence by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Literal, get_args

Language = Literal["en", "zh_CN"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
ASSETS = Path(__file__).parent.parent.parent / "assets"

_language: Language = "en"
_words: Mapping[str, str] = {}


def use(language: Language) -> None:
    """Speak ``language`` from now on."""
    global _language, _words
    _words = catalogue(language)
    _language = language
    from_below.cache_clear()
    _patterns.cache_clear()


def language() -> Language:
    """The language that is spoken now."""
    return _language


def catalogue(language: Language) -> Mapping[str, str]:
    """Each English literal's translation; empty for English itself."""
    if language == "en":
        return {}
    words: dict[str, str] = json.loads((ASSETS / f"{language}.json").read_text("utf-8"))
    return words


def tr(words: str, **values: object) -> str:
    """``words``, an English literal, in the language that is spoken, with ``values`` put in their {places}."""
    said = _words.get(words, words)
    return said.format(**values) if values else said


def later(words: str) -> str:
    """``words`` as they are: marks a literal that is translated where it is shown."""
    return words


def without_mnemonic(words: str) -> str:
    """A menu's words as they read elsewhere: ``&Start`` and ``开始(&S)`` without the letter for the keyboard.

    A doubled ampersand stands for one.
    """
    return re.sub(r"\(&\w\)|&(&?)", r"\1", words)


@lru_cache(maxsize=4096)
def from_below(words: str) -> str:
    """Finished English of the worker, the registry or the results in the language that is spoken.

    Such a sentence has its values in it already: they are found again by the translated templates, whose places are
    numbered. What no template fits stays English.
    """
    if not _words or not words:
        return words
    known = _words.get(words)
    if known is not None:
        return known
    across = words
    for pattern, translation in _patterns():
        found = pattern.fullmatch(words)
        if found:
            said = translation.format(*map(from_below, found.groups()))
            if not any(". " in f"{value} " for value in found.groups()):
                return said
            if across == words:
                across = said  # a value that goes beyond its sentence: only where the sentences alone say nothing
    for mark, joint in (("; ", "; "), (". ", "。")):
        parts = words.split(mark)
        told = list(map(from_below, parts)) if len(parts) > 1 else parts
        if told != parts:
            return joint.join(told)
    bare = words.removesuffix(".")
    told_bare = from_below(bare) if bare != words else bare
    return f"{told_bare}。" if told_bare != bare else across


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The templates with numbered places, those with the most words of their own first."""
    found: list[tuple[int, re.Pattern[str], str]] = []
    for source, translation in _words.items():
        parts = list(Formatter().parse(source)) if "{0}" in source else []
        if parts:
            pattern = "".join(re.escape(text) + ("(.*?)" if place is not None else "") for text, place, _, _ in parts)
            found.append((sum(len(text) for text, *_ in parts), re.compile(pattern, re.DOTALL), translation))
    return [(pattern, translation) for _, pattern, translation in sorted(found, key=lambda f: -f[0])]
