"""Read torch.profiler's trace (the Chrome JSON that it exports) into a Profile. Pure: no torch here.

The export and not the profiler's own objects: it alone names the number formats of an operator's inputs through a
public interface. Field names as written by torch 2.11 to 2.13 with record_shapes=True.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from explorer.config import Workload
from explorer.results.proof import Kernel, Profile, Tally, Uploads
from explorer.results.token_account import Execution

Event = Mapping[str, Any]

BLOCK_MARKER = "explorer block "
"""What a user annotation at the beginning of a block's forward is called; the block's index follows."""
PRODUCTS: Mapping[str, tuple[int, int]] = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
}
"""Matrix products and which of their inputs are the two matrices."""
DTYPES: Mapping[str, str] = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
}
MASK_PLACES: Mapping[str, int] = {
    "aten::_scaled_dot_product_efficient_attention": 3,
    "aten::_scaled_dot_product_cudnn_attention": 3,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 5,
}
"""Which input of a fused attention operator is its mask; flash on CUDA takes none. Source: native_functions.yaml."""
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
OPERATOR = re.compile(r"(?!autograd::)\w+::\w+")
"""An operator's name, unlike those of autograd's nodes, which only call operators."""


def read_profile(
    events: Iterable[Event],
    *,
    device: str,
    workload: Workload,
    steps: int,
    step_ms: float,
    blocks: int,
    width: int,
    vocabulary: int,
    own_kernels: frozenset[str],
    tf32_allowed: bool,
    batch_bytes: int = 0,
) -> Profile:
    """The Profile that a trace's ``events`` (its ``traceEvents``) come to.

    Args:
        width: numbers a token in the residual stream.
        own_kernels: names of this project's Triton kernels.
        batch_bytes: of a training batch's token ids.

    The other arguments become the fields of their names.

    Raises:
        RuntimeError: the trace is of a CUDA device and holds no kernel.
    """
    events = [event for event in events if event.get("ph") == "X"]
    by_kind: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_kind[event.get("cat", "")].append(event)
    operators = by_kind["cpu_op"]
    own_us, innermost = nesting(operators)
    work = [event for kind in DEVICE_WORK for event in by_kind[kind]]
    cuda = device.startswith("cuda")
    if cuda:
        check_recorded(by_kind["kernel"])
    timed = [(event, float(event["dur"])) for event in by_kind["kernel"]]
    if not cuda:
        timed = [(event, us) for event, us in zip(operators, own_us, strict=True) if OPERATOR.match(event["name"])]
    forwards = Counter(event["name"] for event in by_kind["user_annotation"])
    # A kernel bears the number of the call that launched it; all kernels of a graph bear the same one.
    launched = {event["args"]["correlation"] for event in by_kind["kernel"]}
    return Profile(
        device="cuda" if cuda else "cpu",
        workload=workload,
        steps=steps,
        step_ms=step_ms,
        kernels=_kernels(timed),
        operators=tuple(Counter(event["name"] for event in operators).most_common()),
        products=_products(innermost),
        widest_product=max(map(_columns, innermost), default=0),
        vocabulary=vocabulary,
        attention_softmax=_attention_softmax(operators),
        norms=_norms(operators),
        residual_adds=_residual_adds(operators, width),
        attention_dropout=max(map(_dropout, operators), default=0.0),
        attention_masks=sum(map(_masked, operators)),
        block_forwards=tuple(forwards[f"{BLOCK_MARKER}{index}"] for index in range(blocks)),
        triton_kernels=tuple(sorted(own_kernels & {event["name"] for event in by_kind["kernel"]})),
        tf32_allowed=tf32_allowed,
        launches=len(launched) if cuda else None,
        busy_ms=_covered_us(work) / 1e3 if cuda else math.nan,
        uploads=_uploads(by_kind["gpu_memcpy"]),
        batch_bytes=batch_bytes,
        device_reads=_device_reads(operators, by_kind["cuda_runtime"]),
    )


def executions(events: Iterable[Event]) -> tuple[Execution, ...]:
    """Each execution of a device kernel in a trace's ``events``, in the order in which they began."""
    found = [
        Execution(name=event["name"], start_us=float(event["ts"]), end_us=float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("ph") == "X" and event.get("cat") == "kernel"
    ]
    return tuple(sorted(found, key=lambda one: one.start_us))


def check_recorded(kernels: Sequence[Event]) -> None:
    """See that a trace of work on a GPU holds any of it.

    Raises:
        RuntimeError: there is none.
    """
    if not kernels:
        raise RuntimeError(
            "the profiler recorded no kernel on the GPU: CUPTI, which it reads them from, is not usable here. Another "
            "profiler may be attached to this process, or the driver may reserve profiling to administrators"
        )


def nesting(operators: list[Event]) -> tuple[list[float], list[Event]]:
    """Each operator's own time in us, and the matrix products that contain no other.

    Autocast calls an operator again with the inputs cast: only the inner call computes.
    """
    own_us = [float(event["dur"]) for event in operators]
    outer: set[int] = set()
    by_thread: defaultdict[tuple[Any, Any], list[int]] = defaultdict(list)
    for index, event in enumerate(operators):
        by_thread[event["pid"], event["tid"]].append(index)
    for indices in by_thread.values():
        indices.sort(key=lambda i: (operators[i]["ts"], -operators[i]["dur"]))
        stack: list[int] = []
        for index in indices:
            while stack and operators[index]["ts"] >= operators[stack[-1]]["ts"] + operators[stack[-1]]["dur"]:
                stack.pop()
            if stack:
                own_us[stack[-1]] -= operators[index]["dur"]
            if operators[index]["name"] in PRODUCTS:
                outer.update(stack)
            stack.append(index)
    innermost = [e for i, e in enumerate(operators) if e["name"] in PRODUCTS and i not in outer]
    return own_us, innermost


def _kernels(timed: list[tuple[Event, float]]) -> tuple[Kernel, ...]:
    """Kernels by name, from events and their times in us."""
    total: defaultdict[str, float] = defaultdict(float)
    for event, time_us in timed:
        total[event["name"]] += time_us
    counts = Counter(event["name"] for event, _ in timed)
    ordered = sorted(total, key=lambda name: (-total[name], name))
    return tuple(Kernel(name=name, count=counts[name], total_us=total[name]) for name in ordered)


def _dtype(event: Event, index: int) -> str:
    types = event["args"].get("Input type", [])
    name = types[index] if index < len(types) else ""
    return DTYPES.get(name, name or "unknown")


def _products(events: list[Event]) -> tuple[Tally, ...]:
    found: Counter[tuple[str, str]] = Counter()
    for event in events:
        left, right = (_dtype(event, index) for index in PRODUCTS[event["name"]])
        found[_bare(event), left if left == right else f"{left} x {right}"] += 1
    return _tallies(found)


def _columns(product: Event) -> int:
    """Of the second matrix, and so of the result; 0 where the matrices are several, as within attention."""
    shapes = product["args"].get("Input Dims", [])
    right = PRODUCTS[product["name"]][1]
    return int(shapes[right][-1]) if right < len(shapes) and len(shapes[right]) == 2 else 0


def _attention_softmax(operators: list[Event]) -> tuple[Tally, ...]:
    found: Counter[tuple[str, str]] = Counter()
    for event in operators:
        if event["name"] == "aten::_softmax" and len(event["args"]["Input Dims"][0]) == 4:
            # Its third input: whether it computes and returns float32 although its input is float16.
            to_float = event["args"]["Concrete Inputs"][2] == "True"
            found[_bare(event), "float32" if to_float else _dtype(event, 0)] += 1
    return _tallies(found)


def _norms(operators: list[Event]) -> tuple[Tally, ...]:
    found: Counter[tuple[str, str]] = Counter()
    for event in operators:
        if event["name"] == "aten::native_layer_norm":
            found[_bare(event), _dtype(event, 2)] += 1  # its third input, the weight
    return _tallies(found)


def _residual_adds(operators: list[Event], width: int) -> tuple[Tally, ...]:
    found: Counter[tuple[str, str]] = Counter()
    for event in operators:
        shapes = event["args"].get("Input Dims", [])[:2]
        # Equal shapes: positions, which serve every sequence, are added to the embeddings only.
        of_stream = len(shapes) == 2 and shapes[0] == shapes[1] and shapes[0][2:] == [width]
        if event["name"] in ("aten::add", "aten::add_") and of_stream:
            formats = {_dtype(event, 0), _dtype(event, 1)}
            # Of two formats the wider one results: float32, as no other meets a 16-bit one here.
            found["add", formats.pop() if len(formats) == 1 else "float32"] += 1
    return _tallies(found)


def _dropout(event: Event) -> float:
    """The probability that an operator was called with, if it is scaled_dot_product_attention; else 0."""
    if event["name"] != "aten::scaled_dot_product_attention":
        return 0.0
    text = event["args"]["Concrete Inputs"][4]
    return float(text) if text else 0.0


def _masked(event: Event) -> bool:
    """Whether the event is a fused attention operator that was given a mask."""
    place = MASK_PLACES.get(event["name"])
    shapes = event["args"].get("Input Dims", [])
    return place is not None and place < len(shapes) and bool(shapes[place])


def _uploads(copies: list[Event]) -> tuple[Uploads, ...]:
    """Copies to the device: kineto calls them ``Memcpy HtoD (Pinned -> Device)``, or Pageable."""
    found: Counter[tuple[str, int]] = Counter()
    for event in copies:
        if event["name"].startswith("Memcpy HtoD"):
            found["pageable" if "Pageable" in event["name"] else "pinned", int(event["args"].get("bytes", 0))] += 1
    return tuple(
        Uploads(source="pageable" if source == "pageable" else "pinned", bytes=size, count=count)
        for (source, size), count in sorted(found.items())
    )


def _device_reads(operators: list[Event], calls: list[Event]) -> int:
    """Operators that give the host a number and waited for the GPU within. Of a tensor on the host they do not wait."""
    waits = [event for event in calls if event["name"] == "cudaStreamSynchronize"]
    reads = [event for event in operators if event["name"] == "aten::_local_scalar_dense"]
    return sum(any(_within(wait, read) for wait in waits) for read in reads)


def _within(inner: Event, outer: Event) -> bool:
    same_thread = (inner["pid"], inner["tid"]) == (outer["pid"], outer["tid"])
    return same_thread and bool(outer["ts"] <= inner["ts"] < outer["ts"] + outer["dur"])


def _bare(event: Event) -> str:
    return str(event["name"]).removeprefix("aten::")


def _tallies(found: Counter[tuple[str, str]]) -> tuple[Tally, ...]:
    return tuple(Tally(op=op, dtype=dtype, count=count) for (op, dtype), count in sorted(found.items()))


def _covered_us(events: list[Event]) -> float:
    """Length of the union of the events' intervals: kernels on several streams overlap."""
    covered = end = 0.0
    for event in sorted(events, key=lambda e: float(e["ts"])):
        begins, ends = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        if ends > end:
            covered += ends - max(begins, end)
            end = ends
    return covered
