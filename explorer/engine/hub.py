"""Pretrained GPT-2 in the Hugging Face cache, and fetching it when, and only when, that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from huggingface_hub import try_to_load_from_cache

from explorer.engine.errors import BadRequest

REPOSITORIES: Mapping[str, str] = MappingProxyType(
    {name: f"openai-community/{name}" for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")}
)
"""Where each model's weights are published. Source: https://huggingface.co/openai-community."""
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def snapshot(
    name: str,
    *,
    download: bool,
    progress: Callable[[str, float | None, float | None, str], None],
    cancelled: Callable[[], bool],
) -> Path:
    """The folder in the local cache with the files of model ``name``.

    Raises:
        BadRequest: the model is not published, or not in the cache and ``download`` is false, or it cannot be fetched.
        Cancelled: ``cancelled`` came true; the cache is as usable as it was.
    """
    repository = REPOSITORIES.get(name)
    if repository is None:
        raise BadRequest(f"pretrained {name}", "it is not published", f"Published: {', '.join(REPOSITORIES)}.")
    paths = [try_to_load_from_cache(repository, file) for file in FILES]
    if all(isinstance(path, str) for path in paths):
        return Path(str(paths[0])).parent
    raise BadRequest(
        f"pretrained {name}",
        f"{repository} is not in the local Hugging Face cache",
        "Allow the download (--download), give a folder, or use weights=random.",
    )
