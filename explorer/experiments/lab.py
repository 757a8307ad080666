"""The kernel lab as an experiment: which cases there are, and how they are measured one after another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from explorer.experiments.kept import Kept
from explorer.experiments.single import STOP_WITHIN_S
from explorer.experiments.steps import AskedToStop, FreshWorker, Order, Steps, ready
from explorer.messages import Bench, Benched, RunEnded, Stop, WorkerLost
from explorer.results.environment import DeviceInfo, Environment
from explorer.results.export import Cell
from explorer.results.lab import OPERATIONS, Case, Dtype, LabRow, Shape, lab_rows

ELEMENTWISE = ("gelu", "gelu_backward", "bias_gelu", "bias_gelu_backward")
NORMS = ("layer_norm", "layer_norm_backward", "add_layer_norm", "add_layer_norm_backward")
ATTENTION = ("attention", "attention_backward")
ON_THE_CPU = ("naive", "math", "flash")
"""Of attention's variants, those that a CPU has."""
HEAD_SIZES = (16, 32, 64, 80, 96, 128, 192, 256, 512)
MASKS = ("causal", "none", "mask")
"""attention_support: causal by its flag, every token sees every other, a boolean mask is given."""
TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One case and the variants to be measured in it."""

    case: Case
    variants: tuple[str, ...]


def lab_cases(
    device: DeviceInfo, *, quick: bool, only: Sequence[str] = (), variants: Sequence[str] = ()
) -> Sequence[Wanted]:
    """What is measured on ``device``, in order. ``only``: of these operations, a backward pass with its forward one.

    Raises:
        ValueError: ``only`` or ``variants`` names none that there are, or nothing is left.
    """
    names = [name for name in OPERATIONS if not only or name in only or name.removesuffix("_backward") in only]
    unknown = set(only) - OPERATIONS.keys()
    if unknown:
        raise ValueError(f"no operation {', '.join(sorted(unknown))}; allowed: {', '.join(OPERATIONS)}")
    allowed = list(dict.fromkeys(v for operation in OPERATIONS.values() for v in operation.variants))
    if set(variants) - set(allowed):
        raise ValueError(f"no variant {', '.join(set(variants) - set(allowed))}; allowed: {', '.join(allowed)}")
    found = []
    for case in _cases(device, quick=quick):
        possible = _possible(case.operation, device, quick=quick)
        chosen = tuple(v for v in possible if not variants or v in variants)
        if case.operation in names and chosen:
            found.append(Wanted(case=case, variants=chosen))
    if not found:
        raise ValueError(f"none of {', '.join(names)} has a variant {', '.join(variants)} on {device.name}")
    return found


def _possible(operation: str, device: DeviceInfo, *, quick: bool) -> tuple[str, ...]:
    """The variants of ``operation`` that ``device`` can have at all."""
    every = OPERATIONS[operation].variants
    if device.kind == "cuda":
        return every
    if operation.startswith("attention"):
        return tuple(v for v in every if v in ON_THE_CPU)
    # There a compilation takes longer than all the rest.
    return tuple(v for v in every if v not in ("triton", "graph") and not (quick and v == "compile"))


def _cases(device: DeviceInfo, *, quick: bool) -> list[Case]:
    if device.kind == "cpu":
        return _small(64 if quick else 1024, 256 if quick else 1024)
    half: Dtype = "bfloat16" if device.bf16 else "float16"
    rows = {half: (8192, 65536)} if quick else {half: (64, 512, 8192, 65536), "float32": (8192,), "float16": (8192,)}
    fewer = {half: (65536,)} if quick else {half: (8192, 65536), "float32": (8192,)}
    tokens = (1024, 4096) if quick else TOKENS
    found = _on(ELEMENTWISE[:2], rows, lambda r: (r, 3072))
    found += _on(ELEMENTWISE[2:], fewer, lambda r: (r, 3072))
    found += _on(NORMS, fewer, lambda r: (r, 768))
    found += _on(("linear_cross_entropy",), {half: (8192,) if quick else (8192, 32768)}, lambda r: (r, 768, 50304))
    found += _on(ATTENTION, {half: tokens}, lambda t: (8, 12, t, 64))
    found += _on(ATTENTION, {} if quick else {"float32": (1024,)}, lambda t: (8, 12, t, 64))
    found += _support(HEAD_SIZES[2:6] if quick else HEAD_SIZES, (half,) if quick else get_args(Dtype))
    found += _on(("layout",), {half: (8192,)}, lambda r: (r, 3072))
    found += _on(("small_operations",), {"float32": (2**10,) if quick else (2**10, 2**16, 2**20)}, lambda n: (n,))
    found += _on(("item",), {half: (512,) if quick else (256, 512, 1024)}, lambda n: (n,))
    return found


def _small(rows: int, tokens: int) -> list[Case]:
    """What a CPU does in a reasonable time."""
    found = _on((*ELEMENTWISE, *NORMS), {"float32": (rows,)}, lambda r: (r, 768))
    found += _on(("linear_cross_entropy",), {"float32": (rows,)}, lambda r: (r, 256, 8192))
    found += _on(ATTENTION, {"float32": (tokens // 4, tokens)}, lambda t: (1, 4, t, 64))
    found += _support((64, 96), ("float32",))
    found += _on(("layout",), {"float32": (rows,)}, lambda r: (r, 768))
    found += _on(("small_operations",), {"float32": (2**10,)}, lambda n: (n,))
    found += _on(("item",), {"float32": (128,)}, lambda n: (n,))
    return found


def _on(operations: Sequence[str], sizes: Mapping[Dtype, Sequence[int]], shape: Callable[[int], Shape]) -> list[Case]:
    return [
        Case(operation=operation, dtype=dtype, shape=shape(size))
        for operation in operations
        for dtype, some in sizes.items()
        for size in some
    ]


def _support(head_sizes: Sequence[int], dtypes: Sequence[Dtype]) -> list[Case]:
    return [
        Case(operation="attention_support", dtype=dtype, shape=(1, 2, 128, size), detail=mask)
        for dtype in dtypes
        for size in head_sizes
        for mask in MASKS
    ]


def lab_conditions(device: DeviceInfo, here: Environment, *, quick: bool) -> Mapping[str, Any]:
    """What rows must have in common to stand in one table."""
    return {
        "device": device.uuid or device.name,
        "driver": device.driver,
        "torch": here.torch,
        "triton": here.triton,
        "quick": quick,
    }


def lab_cells(rows: Sequence[LabRow], device: DeviceInfo, here: Environment) -> list[dict[str, Cell]]:
    """The rows of the CSV."""
    versions = {"torch": here.torch, "triton": here.triton, "driver": device.driver}
    return lab_rows(rows, device_name=device.name, versions=versions)


def lab(
    wanted: Sequence[Wanted],
    *,
    device: DeviceInfo,
    quick: bool,
    kept: Kept,
    asked_to_stop: AskedToStop,
    on_part: Callable[[str, int], None],
    on_rows: Callable[[Sequence[LabRow]], None],
    next_id: Callable[[], int],
) -> Steps[Sequence[LabRow]]:
    """Measure ``wanted``, as far as it came before a stop; what is ``kept`` is not measured again.

    ``on_rows`` hears all rows so far whenever one more is there; ``next_id`` gives each command its run id. The worker
    must be ready. A variant that fails, or the worker with it, leaves a row that says so, and the next one has a fresh
    worker.
    """
    rows: list[LabRow] = []

    def take(row: LabRow) -> None:
        rows.append(row)
        kept.put("rows", _key(row.case, row.variant), row.to_dict())
        on_rows(rows)

    for place, one in enumerate(wanted):
        stored = [kept.get("rows", _key(one.case, variant)) for variant in one.variants]
        known = [LabRow.from_dict(values) for values in stored if values is not None]
        done = [row for row in known if row.outcome != "failed"]  # what failed is tried again
        rows += done
        if done:
            on_rows(rows)
        left = tuple(v for v in one.variants if v not in {row.variant for row in done})
        while left and not asked_to_stop():
            on_part(str(one.case), len(wanted) - place)
            bench = Bench(run_id=next_id(), device=device.id, case=one.case, variants=left, quick=quick)
            count = len(rows)
            usable = yield from _bench(bench, asked_to_stop, take)
            if len(rows) == count:
                break  # stopped before the first
            left = left[len(rows) - count :]
            if not usable and not asked_to_stop():
                yield from ready((FreshWorker(),))
    on_rows(rows)
    return rows


def _bench(bench: Bench, asked_to_stop: AskedToStop, take: Callable[[LabRow], None]) -> Steps[bool]:
    """Have ``bench`` done; returns whether the worker is as good as before."""
    orders: Sequence[Order] = (bench,)
    asked_at_s: float | None = None
    taken: list[LabRow] = []
    while True:
        events = yield orders
        orders = ()
        for event in events:
            match event:
                case Benched() if event.run_id == bench.run_id:
                    taken.append(event.row)
                    take(event.row)
                case RunEnded() if event.run_id == bench.run_id:
                    if event.problem is not None and len(taken) < len(bench.variants):
                        take(_failed(bench, len(taken), str(event.problem)))
                    return event.problem is None and not any(row.outcome == "failed" for row in taken)
                case WorkerLost():
                    why = event.last_words or f"status {event.exit_code}"
                    if len(taken) < len(bench.variants):
                        take(_failed(bench, len(taken), f"the worker died: {why}"))
                    return False
                case _:
                    pass
        if asked_at_s is None and asked_to_stop():
            asked_at_s = time.monotonic()
            orders = (Stop(run_id=bench.run_id),)
        elif asked_at_s is not None and time.monotonic() > asked_at_s + STOP_WITHIN_S:
            return False


def _failed(bench: Bench, place: int, why: str) -> LabRow:
    """The row of the variant that was being measured."""
    variant = bench.variants[place]
    return LabRow(case=bench.case, variant=variant, outcome="failed", problem=why)


def _key(case: Case, variant: str) -> str:
    return json.dumps([case.operation, case.dtype, case.shape, case.detail, variant])
