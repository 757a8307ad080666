"""The user's home folder, also for users who have none: a container may run as any number."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The home folder; the current folder where the system knows none for this user."""
    try:
        return Path.home()
    except RuntimeError:
        return Path.cwd()


def expanded(path: str) -> Path:
    """``path`` with a leading ~ or ~user put in full; as it is where no such user has a home folder."""
    return Path(os.path.expanduser(path))
