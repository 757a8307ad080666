"""Ceilings that were measured before, by device and driver. Imports no torch."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from explorer.engine.cache import cache_dir, write_atomically
from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo


def known(device: DeviceInfo) -> Ceilings | None:
    """What was measured before on ``device`` under this driver, or None."""
    if device.uuid is None:
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(_path().read_text(encoding="utf-8"))
        return Ceilings.from_dict(kept[_key(device)])
    return None


def keep(device: DeviceInfo, found: Ceilings) -> None:
    """Have ``found`` known from now on, where the cache folder can be written and the device has a name of its own."""
    if device.uuid is None:
        return
    kept = {}
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(_path().read_text(encoding="utf-8"))
    kept = kept if isinstance(kept, dict) else {}
    text = json.dumps({**kept, _key(device): found.to_dict()}, indent=1)
    with contextlib.suppress(OSError):  # measured anew the next time, then
        write_atomically(_path(), lambda file: file.write(text.encode()))


def _key(device: DeviceInfo) -> str:
    return f"{device.uuid} {device.driver}"


def _path() -> Path:
    return cache_dir() / "ceilings.json"
