"""WikiText-2 through the optional package ``datasets``."""

from __future__ import annotations

from pathlib import Path

from explorer.engine.errors import BadRequest
from explorer.engine.text import TextSource

REPOSITORY, SUBSET = "Salesforce/wikitext", "wikitext-2-raw-v1"
"""Merity et al. 2016, as published by its authors; raw: with the original words, not <unk>."""


def wikitext_source(*, download: bool) -> TextSource:
    """The training part of WikiText-2 as one document; its empty rows, every third one, are left out.

    Raises:
        BadRequest: ``datasets`` is not installed, or the text is not in its cache and ``download`` is false.
    """
    try:
        import datasets
    except ImportError:
        raise BadRequest(
            "text=wikitext-2",
            "the package datasets is not installed",
            "pip install 'gpt2-optimization-explorer[wikitext]', or use text=python.",
        ) from None
    config = datasets.DownloadConfig(local_files_only=not download)
    try:
        rows = datasets.load_dataset(REPOSITORY, SUBSET, split="train", download_config=config)
    except Exception as error:  # datasets lets through what its many parts raise
        raise BadRequest(
            "text=wikitext-2",
            f"it could not be downloaded ({error})" if download else f"{REPOSITORY} is not in the local cache",
            "Check the connection, or use text=python."
            if download
            else "Allow the download (--download), or use text=python.",
        ) from error
    files = tuple(Path(entry["filename"]) for entry in rows.cache_files)
    return TextSource(
        name="wikitext-2",
        files=files,
        documents=lambda: iter(("".join(row for row in rows["text"] if row.strip()),)),
    )
