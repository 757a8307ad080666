"""Files in the Hugging Face cache, above all pretrained GPT-2; fetched when, and only when, that was asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

from explorer.engine.errors import BadRequest, Cancelled
from explorer.engine.reporting import Report

REPOSITORIES: Mapping[str, str] = MappingProxyType(
    {name: f"openai-community/{name}" for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")}
)
"""Where each model's weights are published. Source: https://huggingface.co/openai-community."""
FILES = ("config.json", "tokenizer.json", "model.safetensors")
"""The weights last: with them the model is complete."""
MIB = 2**20
LOOK_EVERY_S = 0.1


def snapshot(name: str, *, download: bool, progress: Report, cancelled: Callable[[], bool]) -> Path:
    """The folder in the local cache with the files of model ``name``.

    Raises:
        BadRequest: the model is not published, or not in the cache and ``download`` is false, or it cannot be fetched.
        Cancelled: ``cancelled`` came true; the cache is as usable as it was.
    """
    what = f"Pretrained {name}"
    repository = REPOSITORIES.get(name)
    if repository is None:
        remedy = f"Published: {', '.join(REPOSITORIES)}. For {name} use weights=bundled or random."
        raise BadRequest(what, "these weights are not published", remedy)
    folder = _cached_model(repository)
    if folder is not None:
        return folder
    otherwise = "give a folder, or use weights=random."
    if not download:
        why = f"{repository} is not in the local Hugging Face cache"
        raise BadRequest(what, why, f"Allow the download (--download), {otherwise}")
    for file in FILES:
        try:
            path = fetch(repository, file, kind="model", progress=progress, cancelled=cancelled)
        except RuntimeError as error:
            raise BadRequest(what, str(error), f"Check the connection, {otherwise}") from error
    return path.parent


def fetch(
    repository: str,
    file: str,
    *,
    kind: Literal["model", "dataset"],
    progress: Report,
    cancelled: Callable[[], bool],
) -> Path:
    """The file in the local cache; downloaded where it is not there yet or an older version is.

    Raises:
        RuntimeError: it could not be downloaded; the cache is as it was.
        Cancelled: ``cancelled`` came true; the cache is as usable as it was.
    """
    if cancelled():
        raise Cancelled
    bar = _bar(f"Downloading {file} of {repository}", progress, cancelled)
    # Without hf_xet, whose transfers run outside Python and do not hear a Stop.
    before = constants.HF_HUB_DISABLE_XET
    constants.HF_HUB_DISABLE_XET = True
    try:
        return _heard(lambda: Path(hf_hub_download(repository, file, repo_type=kind, tqdm_class=bar)), cancelled)
    except Cancelled:
        raise
    except Exception as error:  # whatever the HTTP library underneath has; all mean that there is no file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RuntimeError(f"{file} of {repository} could not be downloaded ({reason})") from error
    finally:
        constants.HF_HUB_DISABLE_XET = before


def _heard(download: Callable[[], Path], cancelled: Callable[[], bool]) -> Path:
    """What ``download`` gives. A server that sends nothing any more keeps it waiting for ten seconds and longer, and a
    Stop is heard all the same: then it is left to end by itself, at the next piece that comes or when it gives up.
    """
    ended: queue.SimpleQueue[Path | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            ended.put(download())
        except BaseException as error:  # whatever it is, it is the caller's
            ended.put(error)

    threading.Thread(target=work, name="download", daemon=True).start()
    while True:
        try:
            outcome = ended.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            if cancelled():
                raise Cancelled from None
            continue
        if isinstance(outcome, Path):
            return outcome
        raise outcome


def cached(repository: str, file: str, *, kind: Literal["model", "dataset"]) -> Path | None:
    """The file in the local cache, or None; never the network."""
    path = try_to_load_from_cache(repository, file, repo_type=kind)
    return Path(path) if isinstance(path, str) else None


def _cached_model(repository: str) -> Path | None:
    """The newest snapshot, where it has all that is needed to load the model."""

    def found(file: str) -> Path | None:
        return cached(repository, file, kind="model")

    config, weights = found("config.json"), found("model.safetensors") or found("model.safetensors.index.json")
    tokenizer = found("tokenizer.json") or (found("vocab.json") and found("merges.txt"))
    return config.parent if config and weights and tokenizer else None


def _bar(activity: str, progress: Report, cancelled: Callable[[], bool]) -> type:
    """A class that huggingface_hub takes for a progress bar. Raising in ``update`` ends the download.

    The unfinished file keeps its temporary name, so that nothing takes it for the whole.
    """

    class Bar:
        def __init__(self, *, total: float | None = None, initial: float = 0, **_: Any) -> None:
            self.total, self.n = total, initial

        def update(self, count_bytes: float = 1) -> None:
            if cancelled():
                raise Cancelled
            self.n += count_bytes
            progress(activity, self.n / MIB, self.total / MIB if self.total else None, "MiB")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar
