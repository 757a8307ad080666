"""The texts of two configurations from the same prompt and seed, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from explorer.config import RunConfig
from explorer.experiments.arms import Arms
from explorer.experiments.check import check, unchecked, wanted
from explorer.experiments.steps import AskedToStop, Order, Steps
from explorer.messages import Problem, RunEnded, Samples, Start, Stop, Text, WorkerLost
from explorer.results.checks import Checks
from explorer.results.sample import Sample
from explorer.results.text_pair import Written, written


@dataclass(frozen=True, slots=True, kw_only=True)
class BothTexts:
    """What A and B wrote, as far as they came."""

    arms: tuple[Written, ...]
    """Both, or only A's, or none."""
    problem: Problem | None = None
    worker_usable: bool = True


CheckedTexts = tuple[BothTexts, Mapping[RunConfig, Checks]]


def alike(arms: Arms) -> Arms:
    """``arms`` with A's prompt, of several the first, and seed for both."""
    a, b = (dataclasses.replace(arm, prompt=arms[0].prompt, more_prompts=(), seed=arms[0].seed) for arm in arms)
    return a, b


def write_and_check(
    run_ids: tuple[int, int],
    arms: Arms,
    *,
    checks_id: int,
    parity: bool,
    proof: bool,
    download: bool,
    asked_to_stop: AskedToStop,
    on_text: Callable[[int, str], None],
    on_written: Callable[[int, Written], None],
    on_both: Callable[[BothTexts], None] = lambda both: None,
) -> Steps[CheckedTexts]:
    """``write_both``, then check both arms where ``parity`` or ``proof`` ask for it. The worker must be ready.

    What failed or was stopped is not checked. ``checks_id`` is the run id of the checks; ``on_both`` hears the texts
    before they begin.
    """
    both = yield from write_both(
        run_ids, arms, download=download, asked_to_stop=asked_to_stop, on_text=on_text, on_written=on_written
    )
    on_both(both)
    checks: Mapping[RunConfig, Checks] = {config: unchecked(config) for config in arms}
    verify = wanted(checks, run_id=checks_id, parity=parity, proof=proof, download=download)
    if verify is not None and both.problem is None and not asked_to_stop():
        checks = yield from check(verify, checks, asked_to_stop=asked_to_stop, on_found=lambda config, checks: None)
    return both, checks


def write_both(
    run_ids: tuple[int, int],
    arms: Arms,
    *,
    download: bool,
    asked_to_stop: AskedToStop,
    on_text: Callable[[int, str], None],
    on_written: Callable[[int, Written], None],
) -> Steps[BothTexts]:
    """Have A write, then B; alone on the device each. The worker must be ready.

    ``on_text`` hears each piece with its arm (0 for A), ``on_written`` the whole of it. When asked to stop, the text
    that is being written ends, and no other begins.
    """
    both: list[Written] = []
    for arm, (run_id, config) in enumerate(zip(run_ids, arms, strict=True)):
        pieces: list[str] = []
        samples: list[Sample] = []
        stopping = False
        orders: Sequence[Order] = (Start(run_id=run_id, config=config, download=download),)
        ended: RunEnded | None = None
        while ended is None:
            events = yield orders
            orders = ()
            for event in events:
                match event:
                    case Text() if event.run_id == run_id:
                        pieces.append(event.text)
                        on_text(arm, event.text)
                    case Samples() if event.run_id == run_id:
                        samples += event.samples
                    case RunEnded() if event.run_id == run_id:
                        ended = event
                    case WorkerLost():
                        why = event.last_words or f"status {event.exit_code}"
                        problem = Problem(what="The worker died", why=why)
                        return BothTexts(arms=tuple(both), problem=problem, worker_usable=False)
                    case _:
                        pass
            if asked_to_stop() and not stopping:
                stopping = True
                orders = (Stop(run_id=run_id),)
        if ended.problem is not None:
            return BothTexts(arms=tuple(both), problem=ended.problem, worker_usable=not ended.problem.spent)
        both.append(written("".join(pieces), samples))
        on_written(arm, both[-1])
        if stopping:
            break
    return BothTexts(arms=tuple(both))
