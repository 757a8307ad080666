"""Text to train on, as documents: the running Python's own, wikitext-2, or a file of the user's."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.engine.errors import BadRequest
from explorer.engine.reporting import Report
from explorer.results.home import expanded

PYTHON_TEXT_LIMIT_BYTES = 20_000_000
LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folder names in the standard library's tree that hold tests or other people's packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """Some documents that can be read, and the files that they come from."""

    name: str
    files: tuple[Path, ...]
    """What ``documents`` depends on: as long as these do not change, nor do they."""
    documents: Callable[[], Iterator[str]]


def text_source(name: str, *, download: bool, progress: Report, cancelled: Callable[[], bool]) -> TextSource:
    """The source that ``RunConfig.text`` names.

    Raises:
        BadRequest: it is not there, or is not text; the message says what to do.
        Cancelled: ``cancelled`` came true during a download.
    """
    if name == "python":
        return python_source()
    if name == "wikitext-2":
        from explorer.engine.wikitext import wikitext_source

        return wikitext_source(download=download, progress=progress, cancelled=cancelled)
    return file_source(expanded(name))


def python_source() -> TextSource:
    """The running Python's documentation topics and the sources of its standard library, in sorted order."""
    topics = importlib.util.find_spec("pydoc_data.topics")
    topics_file = Path(topics.origin) if topics is not None and topics.origin is not None else None
    library = Path(sysconfig.get_path("stdlib"))
    files = [path for path in _sources_below(library) if path != topics_file]
    return TextSource(
        name="python",
        files=(*((topics_file,) if topics_file is not None else ()), *files),
        documents=lambda: _python_documents(files, with_topics=topics_file is not None),
    )


def _sources_below(library: Path) -> list[Path]:
    """In sorted order. What is left out is not even looked through: site-packages holds most of an installation."""
    files: list[Path] = []
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(files)


def _python_documents(files: list[Path], *, with_topics: bool) -> Iterator[str]:
    left_bytes = PYTHON_TEXT_LIMIT_BYTES
    if with_topics:
        from pydoc_data.topics import topics

        for key in sorted(topics):
            left_bytes -= len(topics[key].encode())
            yield topics[key]
    for path in files:
        try:
            content = path.read_bytes()
            text = content.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # a few library files are in an older encoding on purpose, or unreadable to this user
        left_bytes -= len(content)
        if left_bytes < 0:
            return
        if text.strip():
            yield text.replace("\r\n", "\n")


def file_source(path: Path) -> TextSource:
    """The user's own text file, as one document.

    Raises:
        BadRequest: the file is not there, no plain file, cannot be read, is empty, binary or not UTF-8.
    """
    what = f"Text file {path}"
    another = "Give another file, or text=python for the text that is always there."
    try:
        if path.is_dir():
            raise BadRequest(what, "it is a folder", "Name one text file in it.")
        if path.exists() and not path.is_file():
            raise BadRequest(what, "it is a pipe or a device, whose text may never end", another)
        content = path.read_bytes()
    except FileNotFoundError:
        raise BadRequest(what, "there is no such file", another) from None
    except OSError as error:
        raise BadRequest(what, f"it cannot be read ({error.strerror})", another) from error
    if not content.strip():
        raise BadRequest(what, "it is empty", another)
    # UTF-16 and binary files alike have zero bytes, and text in UTF-8 has none.
    if b"\0" in content:
        raise BadRequest(
            what, f"it is binary or UTF-16 (a zero byte at offset {content.index(0)})", "Save it as UTF-8."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = content[error.start]
        raise BadRequest(
            what, f"it is not UTF-8 (byte 0x{bad:02x} at offset {error.start})", "Save it as UTF-8."
        ) from None
    return TextSource(name=str(path), files=(path.resolve(),), documents=lambda: iter((text,)))
