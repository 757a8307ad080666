"""What the worker said since the last look, as few events as say the same."""

from __future__ import annotations

import dataclasses

from explorer.gui.language import tr
from explorer.messages import Event, Problem, Samples, Text, WorkerLost


def merged(events: list[Event]) -> list[Event]:
    """``events`` with neighbouring samples of one run put together, and neighbouring pieces of each of its texts."""
    result: list[Event] = []
    open_texts: dict[int, int] = {}
    """By sequence, where in the result its text stands, as long as nothing but text of one run comes."""
    for event in events:
        last = result[-1] if result else None
        match last, event:
            case Samples(), Samples() if last.run_id == event.run_id:
                result[-1] = Samples(run_id=event.run_id, samples=last.samples + event.samples)
            case Text(step=None), Text(step=None) if last.run_id == event.run_id and event.row in open_texts:
                place = open_texts[event.row]
                before = result[place]
                assert isinstance(before, Text)
                result[place] = dataclasses.replace(before, text=before.text + event.text)
            case _:
                match last, event:
                    case Text(step=None), Text(step=None) if last.run_id == event.run_id:
                        open_texts[event.row] = len(result)
                    case _, Text(step=None):
                        open_texts = {event.row: len(result)}
                    case _:
                        open_texts = {}
                result.append(event)
    return result


def loss(event: WorkerLost) -> Problem:
    """What a lost worker is to the person."""
    return Problem(
        what=tr("The worker ended by itself{how}", how=event.how),
        why=event.last_words.splitlines()[-1] if event.last_words else tr("it left no message"),
        remedy=tr("The next Start begins with a new one."),
        detail=event.last_words,
    )
