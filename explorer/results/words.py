"""Words of results that another language can take the place of."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[..., str]
"""Puts values, by name, into the {places} of English words: ``str.format``, or what looks up a translation first."""
