"""What would avoid the failure of a run: settings to try instead, kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """Each to be tried by itself; none where nothing is known to help."""

    flips: tuple[tuple[str, str], ...] = ()
    """Toggles, each with a level."""
    batch: int | None = None
    """A smaller batch."""


NONE_KNOWN = WaysOut()


def ways_out_to_dict(ways: WaysOut) -> dict[str, Any]:
    """In plain JSON types; ``ways_out_from_dict`` reads it back."""
    return {"flips": [list(flip) for flip in ways.flips], "batch": ways.batch}


def ways_out_from_dict(values: Mapping[str, Any]) -> WaysOut:
    """What ``ways_out_to_dict`` wrote; empty: none.

    Raises:
        TypeError, ValueError: it is something else.
    """
    batch = values.get("batch")
    return WaysOut(
        flips=tuple((str(toggle), str(level)) for toggle, level in values.get("flips", ())),
        batch=None if batch is None else int(batch),
    )
