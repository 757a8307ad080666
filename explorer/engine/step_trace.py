"""Read torch.profiler's trace of whole steps: every moment of them to the part that it was spent on. Pure.

On a GPU a kernel belongs to the part in which the host launched it, whichever thread did: autograd's own launches the
backward pass while the thread of the steps waits in it. On the CPU the work is the operators of that thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from explorer.config import Workload
from explorer.engine.trace import DEVICE_WORK, OPERATOR, Event, check_recorded, nesting
from explorer.results.step_profile import REST, KernelTime, PartTime, StepProfile

PART_MARKER = "explorer part "
"""What a user annotation around a part of a step is called; the part's name follows."""
STEP = "step"
"""The part around all the others: what lies in none of them is the rest of the step."""
LAUNCHES = ("cuda_runtime", "cuda_driver")
"""Triton's kernels are launched by the driver's own call, torch's by the runtime's."""


def read_steps(
    events: Iterable[Event],
    *,
    device: Literal["cuda", "cpu"],
    workload: Workload,
    rounds: int,
    passes: int,
    round_ms: float,
    replayed: bool,
    trace_file: str = "",
    memory_file: str = "",
) -> StepProfile:
    """What a trace's ``events`` (its ``traceEvents``) come to; the other arguments become the fields of their names.

    Raises:
        RuntimeError: the trace is of a CUDA device and holds no kernel.
    """
    by_kind: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X":
            by_kind[event.get("cat", "")].append(event)
    marks = [e for e in by_kind["user_annotation"] if e["name"].startswith(PART_MARKER)]
    where = _Parts(marks)
    begins_us, ends_us = where.begins_us, where.ends_us
    launches = None
    if device == "cuda":
        check_recorded(by_kind["kernel"])
        work, part_of = _on_the_gpu(by_kind, where)
        own_us = [float(event["dur"]) for event in work]
        launches = len({event["args"]["correlation"] for event in by_kind["kernel"]})
        ends_us = max(ends_us, *(_end_us(event) for event in work))
    else:
        work = [
            event
            for event in by_kind["cpu_op"]
            if OPERATOR.match(event["name"]) and event["tid"] == where.thread and begins_us <= event["ts"] < ends_us
        ]
        own_us, _ = nesting(work)
        part_of = [where.at(float(event["ts"])) for event in work]
    parts, gap = _partition(work, part_of, where, ends_us, waits_for_work=device == "cuda")
    return StepProfile(
        device=device,
        workload=workload,
        rounds=rounds,
        passes=passes,
        round_ms=round_ms,
        traced_ms=(ends_us - begins_us) / 1e3,
        parts=parts,
        kernels=_kernels(work, own_us, part_of),
        launches=launches,
        longest_gap_ms=gap[0] / 1e3,
        longest_gap_part=gap[1],
        replayed=replayed,
        trace_file=trace_file,
        memory_file=memory_file,
    )


class _Parts:
    """Which part the host was in, at any moment: the innermost of those that were entered then."""

    def __init__(self, marks: Sequence[Event]) -> None:
        assert marks, "no step was marked"
        self.thread: Any = marks[0]["tid"]
        self.begins_us = min(float(mark["ts"]) for mark in marks)
        self.ends_us = max(map(_end_us, marks))
        self._from_us: list[float] = []
        self._names: list[str] = []
        open_now: list[Event] = []
        ordered = sorted(marks, key=lambda m: (float(m["ts"]), -float(m["dur"])))
        for mark in ordered:
            self._close(open_now, float(mark["ts"]))
            open_now.append(mark)
            self._begin(float(mark["ts"]), open_now)
        self._close(open_now, self.ends_us + 1)
        last_first = dict.fromkeys(_name(mark) for mark in reversed(ordered))
        self.names = [name for name in reversed(last_first) if name != REST]
        """All parts but the rest, in the order in which a step last enters them: the optimizer forgets the gradients
        before all, and updates after all."""

    def at(self, moment_us: float) -> str:
        """The part at that moment; what no part was entered at is of the rest."""
        place = bisect_right(self._from_us, moment_us) - 1
        return self._names[place] if place >= 0 else REST

    def between(self, begins_us: float, ends_us: float) -> Iterator[tuple[str, float]]:
        """The parts of that time, in order, and how long each lasted."""
        cuts = [us for us in self._from_us if begins_us < us < ends_us]
        for begin, end in pairwise((begins_us, *cuts, ends_us)):
            yield self.at(begin), end - begin

    def _close(self, open_now: list[Event], now_us: float) -> None:
        while open_now and _end_us(open_now[-1]) <= now_us:
            ended_us = _end_us(open_now.pop())
            self._begin(ended_us, open_now)

    def _begin(self, moment_us: float, open_now: Sequence[Event]) -> None:
        self._from_us.append(moment_us)
        self._names.append(_name(open_now[-1]) if open_now else REST)


def _on_the_gpu(by_kind: defaultdict[str, list[Event]], where: _Parts) -> tuple[list[Event], list[str]]:
    """Kernels and copies, and the part of each."""
    launched_us = {
        event["args"]["correlation"]: float(event["ts"])
        for kind in LAUNCHES
        for event in by_kind[kind]
        if "correlation" in event.get("args", {})
    }
    work = [event for kind in DEVICE_WORK for event in by_kind[kind]]
    work = [event for event in work if _end_us(event) > where.begins_us]
    moments = (launched_us.get(event["args"].get("correlation"), where.ends_us + 1) for event in work)
    return work, [where.at(moment) for moment in moments]


def _partition(
    work: Sequence[Event], part_of: Sequence[str], where: _Parts, ends_us: float, *, waits_for_work: bool
) -> tuple[tuple[PartTime, ...], tuple[float, str]]:
    """The time until ``ends_us`` by part, and the longest gap in us, with the part that ended it.

    Where two run at once the time is the earlier one's. ``waits_for_work``: a gap is of the part whose work ends it,
    as on a device that the host serves; else of the parts in which the host was meanwhile.
    """
    busy_us: defaultdict[str, float] = defaultdict(float)
    waiting_us: defaultdict[str, float] = defaultdict(float)
    longest = (0.0, REST)
    covered_us = where.begins_us

    def wait_until(moment_us: float, part: str) -> None:
        if waits_for_work:
            waiting_us[part] += moment_us - covered_us
        else:
            for name, us in where.between(covered_us, moment_us):
                waiting_us[name] += us

    for event, part in sorted(zip(work, part_of, strict=True), key=lambda one: float(one[0]["ts"])):
        starts_us, stops_us = float(event["ts"]), min(_end_us(event), ends_us)
        if starts_us > covered_us:
            wait_until(starts_us, part)
            longest = max(longest, (starts_us - covered_us, part))
        busy_us[part] += max(0.0, stops_us - max(starts_us, covered_us))
        covered_us = max(covered_us, stops_us)
    wait_until(ends_us, REST)
    runs = Counter(part_of)
    parts = tuple(
        PartTime(name=name, busy_ms=busy_us[name] / 1e3, waiting_ms=waiting_us[name] / 1e3, runs=runs[name])
        for name in (*where.names, REST)
    )
    return parts, longest


def _kernels(work: Sequence[Event], own_us: Sequence[float], part_of: Sequence[str]) -> tuple[KernelTime, ...]:
    total_us: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for event, us, part in zip(work, own_us, part_of, strict=True):
        total_us[event["name"]][part] += us
    counts = Counter(event["name"] for event in work)
    found = [
        KernelTime(
            name=name,
            part=max(by_part, key=lambda part: by_part[part]),
            count=counts[name],
            total_ms=sum(by_part.values()) / 1e3,
        )
        for name, by_part in total_us.items()
    ]
    return tuple(sorted(found, key=lambda kernel: (-kernel.total_ms, kernel.name)))


def _name(mark: Event) -> str:
    name = str(mark["name"]).removeprefix(PART_MARKER)
    return REST if name == STEP else name


def _end_us(event: Event) -> float:
    return float(event["ts"]) + float(event["dur"])
