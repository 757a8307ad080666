"""torch's own watch over waits for the device, which cannot be left on by a test that fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch


@contextmanager
def watched_waits(mode: Literal["warn", "error"]) -> Iterator[None]:
    """While entered, torch warns of a call that makes the host wait for the device, or raises at it.

    Once in a process it warns that it is a prototype, too, and does so when the mode is already set.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
            torch.cuda.set_sync_debug_mode(mode)
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
