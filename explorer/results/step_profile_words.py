"""What a profile of steps comes to: what takes the most of a step, in words made from its numbers."""

from __future__ import annotations

from explorer.results.step_profile import StepProfile
from explorer.results.words import Say

ONE_THING = "Change one thing at a time: flip one toggle, check speed, memory and loss, and profile again."


def dominant(profile: StepProfile, say: Say = str.format) -> str:
    """One sentence: the largest part of a step, or nothing running, with its share.

    A part's shares are those of its bar: of the time that was profiled. What is the largest is judged without the
    profiler, which makes the waits of a GPU longer.
    """
    largest = max(profile.parts, key=lambda part: part.busy_ms)
    busy_share = (1 - profile.idle_share) * largest.busy_ms / (profile.busy_ms or 1.0)
    if profile.idle_share >= busy_share:
        return _idle(profile, say)
    kind, kind_ms = next(iter(profile.kinds().items()))
    return say(
        "The longest to run is {part}: {share:.0%} of the profiled time, {busy:.0%} without its waits. By kind it is "
        "{kind}: {kind_share:.0%} of all that ran.",
        part=say(largest.name),
        share=(largest.busy_ms + largest.waiting_ms) / profile.traced_ms,
        busy=largest.busy_ms / profile.traced_ms,
        kind=say(kind),
        kind_share=kind_ms / (profile.busy_ms + profile.overlap_ms),
    )


def _idle(profile: StepProfile, say: Say) -> str:
    if profile.device == "cpu":
        return say(
            "No operator runs for {share:.0%} of the time: Python between them takes the most.",
            share=profile.idle_share,
        )
    return say(
        "The GPU does nothing for {share:.0%} of the time, more than any part takes: it waits for the host, which made "
        "{launches:,.0f} launches a step.",
        share=profile.idle_share,
        launches=(profile.launches or 0) / profile.rounds / profile.passes,
    )


def adds_up(profile: StepProfile, say: Say = str.format) -> str:
    """How the times of the parts are to be read."""
    traced_ms = profile.traced_ms / profile.rounds
    if profile.workload == "train":
        words = say(
            "A step takes {traced:.2f} ms under the profiler, which slows the host; {plain:.2f} ms without it.",
            traced=traced_ms,
            plain=profile.round_ms,
        )
    else:
        words = say(
            "A prefill and {tokens} tokens take {traced:.2f} ms under the profiler, which slows the host; {plain:.2f} "
            "ms without it.",
            tokens=profile.passes - 1,
            traced=traced_ms,
            plain=profile.round_ms,
        )
    if profile.device == "cuda":
        words += " " + say("Without it nothing runs for {share:.0%} of that.", share=profile.idle_share)
    if profile.replayed:
        words += " " + say("It is replayed as a CUDA graph: see the kernels; the host knows no parts within it.")
    if profile.overlap_ms > 0.005 * profile.traced_ms:
        words += " " + say(
            "{ms:.2f} ms of kernels ran beside others, and are in the kernels' times twice.",
            ms=profile.overlap_ms / profile.rounds,
        )
    return words
