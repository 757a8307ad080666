"""How long work says what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, float | None, float | None, str], None]
"""Called with the activity, how much is done, of how much (None: unknown), and the unit of both."""
