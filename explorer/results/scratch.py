"""Folders of this program in the system's temporary one. They are gone with it, whatever ends it.

A process that is killed takes nothing away. So a folder in use has a lock, which the kernel takes back with the process
that holds it; whoever starts next takes away the folders whose lock is free.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

PREFIX = "gpt2-explorer-"
LOCK = "in-use"


class Scratch:
    """A new folder, ``path``, until it is removed or left as a context manager.

    Raises:
        OSError: there is no place for one: the disk is full or may only be read.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            self._lock = _locked(self.path)
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Take it away, with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def remove_lost() -> None:
    """Take away the folders of processes that have ended without doing so, of this user's only."""
    if sys.platform == "win32":
        return  # without such locks nothing tells them from those in use
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        # A link of that name is another's: never followed.
        folders = [Path(e.path) for e in found if e.name.startswith(PREFIX) and e.is_dir(follow_symlinks=False)]
        for folder in folders:
            _remove_if_lost(folder)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of ``folder``; None where there are no such locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    # Under its name from the moment that it is held: a lock that is there and free is that of a lost process.
    new = folder / f"{LOCK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(new, folder / LOCK)
    return descriptor


def _remove_if_lost(folder: Path) -> None:
    import fcntl

    # Another user's, one that was just made or is just being removed, or a lock that is held.
    with contextlib.suppress(OSError):
        if folder.stat().st_uid != os.getuid():
            return
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
