"""The text that ``mini`` is trained on: Python's documentation and library, and the packages this project stands on.

Much of it is said many times (licence headers, a model's code copied for the next one). A small model would learn that
by heart, so a block of lines is kept once, names of classes and constants apart. One file in a hundred is held out.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import platform
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from explorer.engine.text import LEFT_OUT, python_source
from explorer.engine.tokenizer import END_OF_TEXT

PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "sympy",
    "networkx",
    "pyqtgraph",
    "huggingface-hub",
    "triton",
    "setuptools",
    "mpmath",
    "fsspec",
    "jinja2",
    "filelock",
    "packaging",
    "typer",
    "tokenizers",
    "safetensors",
)
"""What this project needs, directly or through another, under MIT, BSD or Apache licences; PySide6 is not (LGPL)."""
REPEATED = ("transformers", "models")
"""Hundreds of models, each written by copying another and changing names and a few lines: a small model that sees them
writes them out again (6 of 50 samples did)."""
HELD_OUT_ONE_IN = 100
LONGEST_LINE_CHARACTERS = 400
"""A file with a longer line was written by a program."""
LEAST_LETTERS = 0.68
"""Of a file's characters that are not white space; tables of codes and numbers have fewer (1.2% of the corpus)."""
LEAST_BLOCK_CHARACTERS = 80
"""Shorter blocks may repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where documents come from. Bytes are UTF-8."""

    name: str
    version: str
    licence: str
    files: int
    read_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents to train on and documents never trained on, neither with a block that another has."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    original: tuple[str, ...]
    """The files of ``train`` whole, with all that they repeat: what a sample must not copy from."""
    origins: tuple[Origin, ...]


def collect(packages: Sequence[str] = PACKAGES, *, limit_bytes: int | None = None) -> Corpus:
    """The corpus on this machine; a package that is not installed is left out.

    Args:
        limit_bytes: read no more than about this much of each origin.
    """
    blocks = _Blocks()
    train: list[str] = []
    held_out: list[str] = []
    original: list[str] = []
    origins: list[Origin] = []
    files: set[bytes] = set()
    for name, version, licence, documents in _sources(packages):
        count = read_bytes = kept_bytes = 0
        for document in documents:
            digest = hashlib.sha256(document.encode()).digest()
            if digest in files or not _is_prose_or_code(document):
                continue
            files.add(digest)
            count += 1
            read_bytes += len(document.encode())
            kept = blocks.new_part(document)
            kept_bytes += len(kept.encode())
            apart = is_held_out(document)
            if not apart:
                original.append(document)
            if kept:
                (held_out if apart else train).append(kept)
            if limit_bytes is not None and read_bytes >= limit_bytes:
                break
        if count:
            origins.append(
                Origin(
                    name=name,
                    version=version,
                    licence=licence,
                    files=count,
                    read_bytes=read_bytes,
                    kept_bytes=kept_bytes,
                )
            )
    return Corpus(train=tuple(train), held_out=tuple(held_out), original=tuple(original), origins=tuple(origins))


def is_held_out(document: str) -> bool:
    """Whether nothing is trained on ``document``: by its hash, so that it is the same wherever the text is."""
    digest = hashlib.sha256(document.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def _sources(packages: Sequence[str]) -> Iterator[tuple[str, str, str, Iterator[str]]]:
    yield "python", platform.python_version(), "PSF-2.0", python_source().documents()
    for name in packages:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        yield name, distribution.version, _licence(distribution), _documents(distribution)


def _licence(distribution: metadata.Distribution) -> str:
    about = distribution.metadata
    stated = next((about[key] for key in ("License-Expression", "License") if key in about), "")
    if stated and len(stated) < 200:
        return stated
    classifiers = about.get_all("Classifier") or []
    return ", ".join(line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License")) or "not stated"


def _documents(distribution: metadata.Distribution) -> Iterator[str]:
    for path in sorted(distribution.files or [], key=str):
        if path.suffix != ".py" or LEFT_OUT.intersection(path.parts) or ".." in path.parts:
            continue
        if path.parts[:2] == REPEATED:
            continue
        try:
            yield Path(str(path.locate())).read_bytes().decode("utf-8").replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError):
            continue


def _is_prose_or_code(document: str) -> bool:
    # A literal end token would become the real one.
    if END_OF_TEXT in document or max(map(len, document.split("\n"))) > LONGEST_LINE_CHARACTERS:
        return False
    dense = "".join(document.split())
    return bool(dense) and sum(map(str.isalpha, dense)) >= LEAST_LETTERS * len(dense)


class _Blocks:
    """Remembers blocks of lines that were seen, so that each is kept once.

    A section begins after an empty line at the left margin: a function, a class, a part of a module's text. A block of
    it begins at an indented def or class with its decorators: a method.
    """

    _SECTION = re.compile(r"(?<=\n)\n+(?=\S)")
    _BLOCK = re.compile(r"^(?=[ \t]+(?:@|def |class |async def ))", re.MULTILINE)
    # Code copied for the next model differs in the names of its classes, and in numbers.
    _NAME = re.compile(r"\b(?:[a-z_0-9]*+[A-Z]\w*+|\d++)")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def new_part(self, document: str) -> str:
        """``document`` without the blocks that were seen before; what is left parses where it did."""
        text = "".join(self._new_part_of_section(section) for section in _cut(document, self._SECTION))
        return text if len("".join(text.split())) >= LEAST_BLOCK_CHARACTERS else ""

    def _new_part_of_section(self, section: str) -> str:
        kept = "".join(block for block in self._blocks(section) if self._is_new(block))
        if kept == section or not kept or _parses(kept) or not _parses(section):
            return kept
        # A class that has lost all its methods, say: whole where most of it is new, else away with it.
        return section if 2 * len(kept) > len(section) else ""

    def _blocks(self, section: str) -> list[str]:
        blocks: list[str] = []
        for piece in _cut(section, self._BLOCK):
            if blocks and blocks[-1].lstrip().startswith("@") and not re.search(r"\b(?:def|class) ", blocks[-1]):
                blocks[-1] += piece
            else:
                blocks.append(piece)
        return blocks

    def _is_new(self, block: str) -> bool:
        plain = "".join(self._NAME.sub("N", block).split())
        if len(plain) < LEAST_BLOCK_CHARACTERS:
            return True
        digest = hashlib.blake2b(plain.encode(), digest_size=12).digest()
        new = digest not in self._seen
        self._seen.add(digest)
        return new


def _cut(text: str, beginning: re.Pattern[str]) -> list[str]:
    places = sorted({0, *(match.start() for match in beginning.finditer(text)), len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in text that is not ours
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
