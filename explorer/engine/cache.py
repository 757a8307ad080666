"""Where derived files are kept between runs, and how they are written."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from explorer.results.home import home


def cache_dir() -> Path:
    """The folder for files that can be made again; it may not exist yet.

    Source: XDG Base Directory Specification; Apple's File System Programming Guide; Windows' Known Folders.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        # The specification has relative paths ignored.
        if not os.path.isabs(base):
            base = str(home() / ".cache")
    return Path(base) / "gpt2-explorer"


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have ``write`` fill a file that appears at ``path`` whole or not at all.

    Raises:
        OSError: the folder cannot be made or written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
