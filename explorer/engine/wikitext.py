"""WikiText-2 in the Hugging Face cache. Its format, Parquet, is read by what the optional ``datasets`` brings."""

from __future__ import annotations

from collections.abc import Callable

from explorer.engine import hub
from explorer.engine.errors import BadRequest
from explorer.engine.reporting import Report
from explorer.engine.text import TextSource

REPOSITORY, FILE = "Salesforce/wikitext", "wikitext-2-raw-v1/train-00000-of-00001.parquet"
"""Merity et al. 2016, as published by its authors; raw: with the original words, not <unk>.

``datasets.load_dataset`` asks the network even for what it has; this file is the whole training part.
"""
WHAT = "text=wikitext-2"


def wikitext_source(*, download: bool, progress: Report, cancelled: Callable[[], bool]) -> TextSource:
    """The training part of WikiText-2 as one document; its empty rows, every third one, are left out.

    Raises:
        BadRequest: ``datasets`` is not installed, or the text is not in the cache and cannot or may not be fetched.
        Cancelled: ``cancelled`` came true.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        remedy = "pip install 'gpt2-optimization-explorer[wikitext]', or use text=python."
        raise BadRequest(WHAT, "the package datasets is not installed", remedy) from None
    path = hub.cached(REPOSITORY, FILE, kind="dataset")
    if path is None and not download:
        why = f"{REPOSITORY} is not in the local Hugging Face cache"
        raise BadRequest(WHAT, why, "Allow the download (--download), or use text=python.")
    if path is None:
        try:
            path = hub.fetch(REPOSITORY, FILE, kind="dataset", progress=progress, cancelled=cancelled)
        except RuntimeError as error:
            raise BadRequest(WHAT, str(error), "Check the connection, or use text=python.") from error
    try:
        rows = parquet.read_table(path, columns=["text"])["text"].to_pylist()
    except (OSError, ValueError, KeyError) as error:  # pyarrow's own errors are of these kinds
        raise BadRequest(WHAT, f"{path} is damaged ({error})", "Delete that file and download it again.") from error
    text = "".join(row for row in rows if row and not row.isspace())
    return TextSource(name="wikitext-2", files=(path,), documents=lambda: iter((text,)))
