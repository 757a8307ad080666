"""Strings that end a text, looked for while it comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes a text on up to the first of ``stops`` that is whole, wherever the borders of its pieces lie.

    What could be the beginning of one is kept back until more has come: what was shown never has to be taken back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._kept = ""
        self.found = False
        """Whether the text has come to its end: nothing more is passed on."""

    def look_for(self, stops: Sequence[str]) -> None:
        """Look for these from now on, in what comes and in what is kept back."""
        self._stops = tuple(stops)

    def push(self, piece: str) -> str:
        """What of ``piece``, and of what was kept back, certainly belongs to the text."""
        if self.found:
            return ""
        text = self._kept + piece
        places = [(text.find(stop), len(stop)) for stop in self._stops]
        whole = [(place + length, place) for place, length in places if place >= 0]
        if whole:
            self.found, self._kept = True, ""
            return text[: min(whole)[1]]
        sure = len(text) - max((_begun(text, stop) for stop in self._stops), default=0)
        self._kept = text[sure:]
        return text[:sure]

    def finish(self) -> str:
        """What was kept back, for nothing comes after it; begins anew with it."""
        rest, self._kept = self._kept, ""
        return rest


def _begun(text: str, stop: str) -> int:
    """How many letters at the end of ``text`` are the beginning of ``stop``."""
    return next((length for length in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:length])), 0)
