"""A file is there whole or not at all: written beside its place, flushed to the disk, then put in it."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def check_target(path: Path) -> None:
    """See before a long run whether its result can be written to ``path``.

    Raises:
        ValueError: ``path`` is a folder or no possible name, or its folder is missing or closed to us.
    """
    _check_name(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file name in it")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} is not there; make it first or choose another")
    if not os.access(path if _is_special(path) else path.parent, os.W_OK):
        raise ValueError(f"no permission to write to {path.parent}; choose another folder")


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write; on leaving it takes the place of ``path``, in one step and flushed to the disk.

    When the body or the disk fails, what was at ``path`` stays as it was and nothing is left beside it. A symbolic
    link is followed; a pipe or device such as /dev/stdout is written to directly.

    Raises:
        ValueError: as ``check_target``.
        RuntimeError: the disk is full or fails; the message says which file and why.
    """
    check_target(path)
    try:
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.tmp")
        try:
            # Opened with the usual mode, so that the file gets the rights that the user's umask gives new files.
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except PermissionError as error:
        raise ValueError(f"no permission to write {path}: {error.strerror}; choose another folder") from error
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise RuntimeError(f"{path} could not be written: {why}") from error


def discard_parts(path: Path) -> None:
    """Take away what a process that was killed while it wrote ``path`` by ``replaced`` left beside it."""
    target = Path(os.path.realpath(path))
    for part in target.parent.glob(f".{glob.escape(target.name[:200])}.????????.tmp"):
        part.unlink(missing_ok=True)


def check_new_folder(path: Path) -> None:
    """See before a long run whether its result can become the folder ``path``.

    Raises:
        ValueError: ``path`` is a file, a folder with something in it or no possible name, or the folder around it is
            missing or closed.
    """
    _check_name(path)
    if path.is_dir():
        if any(path.iterdir()):
            raise ValueError(f"{path} is there and not empty; name another folder, or empty it first")
    elif path.exists() or path.is_symlink():
        raise ValueError(f"{path} is no folder; choose another name")
    around = path.absolute().parent
    if not around.is_dir():
        raise ValueError(f"the folder {around} is not there; make it first or choose another")
    if not os.access(around, os.W_OK):
        raise ValueError(f"no permission to write to {around}; choose another folder")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write files into; on leaving it becomes ``path``, in one step and flushed to the disk.

    When the body or the disk fails, nothing is left and ``path`` is as it was: absent, or empty.

    Raises:
        ValueError: as ``check_new_folder``.
        RuntimeError: the disk is full or fails.
    """
    check_new_folder(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
        if target.is_dir():
            target.rmdir()  # which only an empty one lets happen
        os.replace(temporary, target)
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise RuntimeError(f"{path} could not be written: {why}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_name(path: Path) -> None:
    """See that the system takes ``path`` for a name at all; what lies there is not looked at.

    Raises:
        ValueError: it does not, as of a name that is too long.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as error:  # ValueError: a null character
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{str(path)!r} cannot be a file's name: {why}") from error


def _is_special(path: Path) -> bool:
    """Whether ``path`` is there and is no regular file, such as a pipe or /dev/stdout."""
    return path.exists() and not path.is_file() and not path.is_dir()
