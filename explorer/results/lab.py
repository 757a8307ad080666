"""The kernel lab's operations, and what was measured of each variant in one case, as plain data.

R rows, C columns; B sequences, H heads, T tokens, D numbers a head (or a row, in linear_cross_entropy), V columns of
logits; e bytes an element.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from explorer.results.sample import NAN

Dtype = Literal["float32", "float16", "bfloat16"]
ITEM_BYTES: Mapping[Dtype, int] = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})
Outcome = Literal["measured", "runs", "refused", "out of memory", "failed"]
"""runs: it was only asked whether it does. refused: the variant says that it cannot do this case."""
Timing = Literal["graph", "events", "host clock", "wall"]
"""graph: replays of a recorded CUDA graph, the L2 cache cleared before each. events: calls, cleared likewise, where
they take so long that launching them counts for nothing. host clock: on the CPU, nothing cleared. wall: many in a row
by the host's clock, what the host does included."""
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that several implementations do."""

    dimensions: str
    """What its shape counts, a letter each."""
    variants: tuple[str, ...]
    moved: Callable[[Shape, int], float] = lambda shape, e: NAN
    """Bytes that must go to and from memory at least, of a shape and e. NaN: no figure is made of them."""
    flop: Callable[[Shape], float] = lambda shape: NAN
    """Arithmetic that must be done."""


def _rows(tensors: int, per_element: int, per_column: int = 0) -> dict[str, Any]:
    """``tensors`` of (R, C) and ``per_column`` of (C,) go through memory."""
    return {
        "dimensions": "RC",
        "moved": lambda shape, e: (tensors * shape[0] + per_column) * shape[1] * e,
        "flop": lambda shape: per_element * math.prod(shape),
    }


_FUSABLE = ("torch", "compile", "triton")
_KERNELS = ("math", "flash", "efficient", "cudnn", "triton")

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "gelu": Operation(variants=("hf", *_FUSABLE), **_rows(2, 7)),
        "gelu_backward": Operation(variants=("hf", *_FUSABLE), **_rows(3, 15)),
        "bias_gelu": Operation(variants=("hf", *_FUSABLE), **_rows(2, 8, 1)),
        "bias_gelu_backward": Operation(variants=("hf", *_FUSABLE), **_rows(3, 17, 2)),
        "layer_norm": Operation(variants=_FUSABLE, **_rows(2, 8, 2)),
        "layer_norm_backward": Operation(variants=_FUSABLE, **_rows(3, 14, 3)),
        "add_layer_norm": Operation(variants=_FUSABLE, **_rows(4, 9, 2)),
        "add_layer_norm_backward": Operation(variants=_FUSABLE, **_rows(4, 15, 3)),
        "linear_cross_entropy": Operation(
            dimensions="RDV",
            variants=("hf", *_FUSABLE),
            # Forward and backward: x and W are read, dx and dW written.
            moved=lambda shape, e: 2 * (shape[0] + shape[2]) * shape[1] * e,
            flop=lambda shape: 6 * math.prod(shape),
        ),
        "attention": Operation(
            dimensions="BHTD",
            variants=("naive", *_KERNELS),
            moved=lambda shape, e: 4 * math.prod(shape) * e,
            # Two products over the lower half of T x T.
            flop=lambda shape: 2 * math.prod(shape) * shape[2],
        ),
        "attention_backward": Operation(
            dimensions="BHTD",
            variants=("naive", *_KERNELS),
            moved=lambda shape, e: 8 * math.prod(shape) * e,
            flop=lambda shape: 5 * math.prod(shape) * shape[2],
        ),
        "attention_support": Operation(dimensions="BHTD", variants=_KERNELS),
        "layout": Operation(
            variants=("contiguous", "transposed", "strided", "strided_copied", "transposed_copied"), **_rows(2, 7)
        ),
        "small_operations": Operation(dimensions="N", variants=("eager", "compile", "graph")),
        "item": Operation(dimensions="N", variants=("no_wait", "item_each_step")),
    }
)
"""attention_support only asks which kernel takes a case. layout: GeLU on views of other strides. small_operations: a
chain of 24 on N numbers. item: a training step of an N-wide perceptron, without and with its loss asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operation on inputs of one shape and dtype."""

    operation: str
    dtype: Dtype
    shape: Shape
    detail: str = ""
    """What else sets it apart: attention_support's mask."""

    @property
    def moved_bytes(self) -> float:
        return OPERATIONS[self.operation].moved(self.shape, ITEM_BYTES[self.dtype])

    @property
    def flop(self) -> float:
        return OPERATIONS[self.operation].flop(self.shape)

    @property
    def shape_words(self) -> str:
        return "x".join(map(str, self.shape)) + (f" {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype} {self.shape_words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRow:
    """What one variant showed in one case. NaN and -1: not measured."""

    case: Case
    variant: str
    outcome: Outcome
    problem: str = ""
    """Why it was refused or failed."""
    time_us: float = NAN
    """Median, of the operation alone; by ``timed_by``."""
    spread: float = NAN
    """Distance of the quartiles over the median."""
    n: int = 0
    timed_by: Timing | None = None
    host_us: float = NAN
    """What one call costs the host, which waits for nothing."""
    peak_bytes: int = -1
    """The allocator's peak during a call, above what it held before: results and what was needed besides."""
    rel_error: float = NAN
    """Norm of the difference from float64 over the norm, the largest of the results compared."""
    copy_gb_per_s: float = NAN
    """What a copy that moves as many bytes did in the same run, timed the same way; bytes read and written."""
    product_tflop_per_s: float = NAN
    """What a large matrix product of this dtype did in the same run."""

    @property
    def gb_per_s(self) -> float:
        return self.case.moved_bytes / self.time_us / 1e3

    @property
    def tflop_per_s(self) -> float:
        return self.case.flop / self.time_us / 1e6

    @property
    def ceiling_fraction(self) -> float:
        """The time that the card's limits allow (its copy, or its products where they take longer) over the time."""
        if not math.isfinite(self.time_us):
            return NAN
        limits_us = (
            self.case.moved_bytes / self.copy_gb_per_s / 1e3,
            self.case.flop / self.product_tflop_per_s / 1e6,
        )
        known = [us for us in limits_us if math.isfinite(us)]
        return max(known) / self.time_us if known else NAN

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, NaN as None; ``from_dict`` reads it back."""
        values = dataclasses.asdict(self)
        values["case"]["shape"] = list(self.case.shape)
        return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabRow:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing, unknown or of the wrong kind; the message says which.
        """
        try:
            case = Case(**{**values["case"], "shape": tuple(values["case"]["shape"])})
            known = {name: value for name, value in values.items() if value is not None}
            return cls(**{**known, "case": case})
        except (KeyError, TypeError) as error:
            raise ValueError(f"a row of the lab cannot be read: {error}") from error


def lab_rows(
    rows: Sequence[LabRow], *, device_name: str, versions: Mapping[str, str | None]
) -> list[dict[str, str | int | float | bool | None]]:
    """The rows as CSV has them, in their order."""
    return [
        {
            "operation": row.case.operation,
            "variant": row.variant,
            "dtype": row.case.dtype,
            "shape": "x".join(map(str, row.case.shape)),
            "detail": row.case.detail,
            "outcome": row.outcome,
            "time_us": _known(row.time_us),
            "spread": _known(row.spread),
            "n": row.n,
            "timed_by": row.timed_by,
            "host_us": _known(row.host_us),
            "gb_per_s": _known(row.gb_per_s),
            "tflop_per_s": _known(row.tflop_per_s),
            "ceiling_fraction": _known(row.ceiling_fraction),
            "rel_error": _known(row.rel_error),
            "peak_bytes": row.peak_bytes if row.peak_bytes >= 0 else None,
            "moved_bytes": _known(row.case.moved_bytes),
            "flop": _known(row.case.flop),
            "copy_gb_per_s": _known(row.copy_gb_per_s),
            "product_tflop_per_s": _known(row.product_tflop_per_s),
            "problem": row.problem,
            "device_name": device_name,
            **versions,
        }
        for row in rows
    ]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
