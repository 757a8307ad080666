"""Compare two configurations: drive the worker's blocks until the interval is narrow or the time is spent."""

from __future__ import annotations

import time
from collections.abc import Callable

from explorer.experiments.single import POLL_S, STOP_WITHIN_S, Worker
from explorer.messages import BlockEnded, Compare, Event, Problem, RunEnded, Stop, WorkerLost
from explorer.results.blocks import Block, Blocks, EndedBy


def compare(
    worker: Worker,
    command: Compare,
    on_event: Callable[[Event], None],
    on_pair: Callable[[Blocks], None],
    *,
    budget_s: float,
) -> tuple[Blocks, EndedBy, RunEnded]:
    """Send ``command`` and measure until the rule is met or ``budget_s`` seconds after the first block.

    ``on_event`` hears every event, ``on_pair`` the blocks so far after each pair. Returns the blocks, what ended
    the measuring, and how the runs ended: failed with its problem, or stopped. Ctrl-C ends it as ``stopped``, with
    what was measured; KeyboardInterrupt is not raised again.
    """
    blocks = Blocks()
    ended_by: EndedBy = "stopped"
    deadline_s: float | None = None
    worker.send(command)
    settled = asked_to_stop = False
    while True:
        try:
            for event in worker.drain():
                on_event(event)
                match event:
                    case BlockEnded():
                        block = Block(step_ms=event.step_ms_median, sm_clock_mhz=event.sm_clock_mhz)
                        whole = len(blocks.pairs)
                        blocks.add(event.arm, event.pair, block)
                        if len(blocks.pairs) > whole:
                            settled = blocks.settled()
                            on_pair(blocks)
                        if deadline_s is None:
                            deadline_s = time.monotonic() + budget_s
                    case RunEnded() if event.run_id == command.run_ids[1] or event.problem is not None:
                        return blocks, ended_by, event
                    case WorkerLost():
                        problem = Problem(what="The worker died", why=event.last_words or f"status {event.exit_code}")
                        return blocks, ended_by, RunEnded(run_id=command.run_ids[0], outcome="failed", problem=problem)
                    case _:
                        pass
            if not asked_to_stop and deadline_s is not None:
                if settled or time.monotonic() > deadline_s:
                    ended_by = "settled" if settled else "budget"
                    asked_to_stop = True
                    worker.send(Stop(run_id=command.run_ids[0]))
            elif asked_to_stop and deadline_s is not None and time.monotonic() > deadline_s + STOP_WITHIN_S:
                return blocks, ended_by, RunEnded(run_id=command.run_ids[0], outcome="stopped")
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            asked_to_stop = True
            deadline_s = time.monotonic()
            worker.send(Stop(run_id=command.run_ids[0]))
