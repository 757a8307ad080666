"""Text tokenized once, kept in the user's cache folder, and read back by memory map."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from explorer.engine.cache import cache_dir, write_atomically
from explorer.engine.errors import Cancelled
from explorer.engine.reporting import Report
from explorer.engine.text import TextSource
from explorer.engine.tokenizer import Tokenizer

PIECE_CHARACTERS = 2**16
"""Text goes to the tokenizer in pieces of about this size, so that progress shows and Stop is heard."""
BATCH_CHARACTERS = 2**20
"""Pieces tokenized together, on all cores: half a second's work for one, after which Stop is heard."""
_CUT = re.compile(r"(?<=\S)[ \n]")
"""GPT-2's pattern never joins white space to what comes before it: a cut here changes no token."""


def cached_tokens(
    source: TextSource, tokenizer: Tokenizer, progress: Report, cancelled: Callable[[], bool]
) -> np.ndarray:
    """All tokens of ``source``, 1-D, uint16 or uint32, each document followed by ``tokenizer.end_id``.

    Where the cache cannot be written ``progress`` says so, and the tokens stay in memory.

    Raises:
        Cancelled: ``cancelled`` came true; nothing was stored.
    """
    folder = cache_dir() / "tokens"
    tokenizer_hash = hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    # Files that look the same (path, size, time of change) are not read again: what they hash to names the key.
    seen = folder / f"{_hash_of_stats(source, tokenizer_hash)}.key"
    tokens = _opened(folder / f"{_read_key(seen)}.npy", tokenizer)
    if tokens is not None:
        return tokens
    documents = list(source.documents())
    key = _hash_of_texts(documents, tokenizer_hash)
    path = folder / f"{key}.npy"
    tokens = _opened(path, tokenizer)
    fresh = None
    try:
        if tokens is None:
            fresh = tokenize(documents, tokenizer, progress, cancelled)
            write_atomically(path, lambda file: np.save(file, fresh, allow_pickle=False))
            tokens = _opened(path, tokenizer)
        write_atomically(seen, lambda file: file.write(key.encode()))
    except OSError as error:
        progress(
            f"The cache folder {folder} cannot be written ({error.strerror}): tokens stay in memory", None, None, ""
        )
    if tokens is not None:
        return tokens
    assert fresh is not None
    return fresh


def tokenize(
    documents: Iterable[str], tokenizer: Tokenizer, progress: Report, cancelled: Callable[[], bool]
) -> np.ndarray:
    """The ids of ``documents``, each followed by ``tokenizer.end_id``, as uint16 where they fit, else uint32.

    Raises:
        Cancelled: ``cancelled`` came true.
    """
    documents = list(documents)
    dtype = np.uint16 if tokenizer.vocabulary <= 2**16 else np.uint32
    total = sum(map(len, documents))
    done, parts = 0, [np.empty(0, dtype)]
    for batch in _batches(documents):
        if cancelled():
            raise Cancelled
        for (text, ends), ids in zip(batch, tokenizer.encode_batch([text for text, _ in batch]), strict=True):
            parts.append(np.array([*ids, tokenizer.end_id] if ends else ids, dtype))
            done += len(text)
        progress("Tokenizing the text", done / 1e6, total / 1e6, "M characters")
    return np.concatenate(parts)


def _batches(documents: list[str]) -> Iterator[list[tuple[str, bool]]]:
    """Pieces of documents, and whether each ends its document, some million characters at a time."""
    batch: list[tuple[str, bool]] = []
    characters = 0
    for document in documents:
        start = 0
        while True:
            cut = _CUT.search(document, start + PIECE_CHARACTERS) if len(document) - start > PIECE_CHARACTERS else None
            piece = document[start : cut.start() if cut else None]
            batch.append((piece, cut is None))
            characters += len(piece)
            if characters >= BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
            if cut is None:
                break
            start = cut.start()
    if batch:
        yield batch


def _hash_of_stats(source: TextSource, tokenizer_hash: str) -> str:
    digest = hashlib.sha256(tokenizer_hash.encode())
    for path in source.files:
        status = path.stat()
        digest.update(f"\0{path}\0{status.st_size}\0{status.st_mtime_ns}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _hash_of_texts(documents: list[str], tokenizer_hash: str) -> str:
    digest = hashlib.sha256(tokenizer_hash.encode())
    for document in documents:
        content = document.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def _read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return "none"
    return key if re.fullmatch("[0-9a-f]{64}", key) else "none"


def _opened(path: Path, tokenizer: Tokenizer) -> np.ndarray | None:
    """The stored tokens by memory map, or None where there are none that can be used."""
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    # An id out of range would read past the embedding, which on CUDA ends the whole process.
    usable = tokens.ndim == 1 and tokens.dtype in (np.uint16, np.uint32) and tokens.size
    return tokens if usable and int(tokens.max()) < tokenizer.vocabulary else None
