"""A comparison that was measured: its blocks, from which its figures can be worked out again at any time."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from explorer.results.blocks import Block, Blocks, ComparisonResult, EndedBy, comparison_row
from explorer.results.export import Cell, segment_row
from explorer.results.log import RunRecord

# Columns of both arms, and those that they share.
_OF_ARMS = (
    *("batch", "seq", "peak_allocated_bytes", "reserved_bytes", "loss_last"),
    *("tflop_per_s", "mfu_measured", "mfu_published", "joules_per_token"),
)
_SHARED = ("workload", "model", "weights", "device", "device_name", "seed", "driver", "torch", "triton", "cuda")


@dataclass(slots=True, kw_only=True)
class ComparisonRecord:
    """Two runs measured by turns, in blocks."""

    run_uids: tuple[str, str]
    """A's and B's."""
    names: tuple[str, str]
    """What the arms are called."""
    floor: float
    """What this machine shows when nothing differs, as a share."""
    floor_measured: bool
    blocks: Blocks = field(default_factory=Blocks)
    ended_by: EndedBy | None = None
    """None while it is going, and where it never came to its end."""
    beside: Mapping[str, Cell] = field(default_factory=dict)
    """Further columns: what was found out about the arms beside their times, such as parity."""
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells the comparison from any other, on whatever machine."""
    started_at: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    """When it was begun: ISO 8601 with offset."""

    def result(self, *, floor: float | None = None) -> ComparisonResult | None:
        """What the blocks come to, or None with fewer than two pairs that count.

        ``floor``: judge by this one instead of the comparison's own.
        """
        return self.blocks.result(
            floor=self.floor if floor is None else floor,
            floor_measured=self.floor_measured or floor is not None,
            ended_by=self.ended_by or "stopped",
        )


def comparison_cells(
    comparison: ComparisonRecord,
    result: ComparisonResult,
    arms: tuple[RunRecord, RunRecord],
    *,
    toggles: Mapping[str, str],
) -> dict[str, Cell]:
    """A comparison as a row of CSV: what it came to, what each arm was and held, and the machine.

    Args:
        comparison: the comparison.
        result: what its blocks come to.
        arms: the runs of A and B, each with its samples.
        toggles: each toggle's first level by its name, in column order.
    Raises:
        ValueError: an arm has no segment.
    """
    a, b = (segment_row(arm, 0, toggles=toggles) for arm in arms)
    per_arm = (*toggles, *_OF_ARMS)
    row: dict[str, Cell] = {"a": comparison.names[0], "b": comparison.names[1], **comparison_row(result)}
    row |= {f"{arm}_{name}": of[name] for name in per_arm for arm, of in (("a", a), ("b", b))}
    peaks = a["peak_allocated_bytes"], b["peak_allocated_bytes"]
    row["memory_ratio"] = peaks[1] / peaks[0] if isinstance(peaks[0], int) and isinstance(peaks[1], int) else None
    row |= {name: a[name] for name in _SHARED} | {"started_at": a["started_at"]}
    return row | dict(comparison.beside)


def comparison_to_dict(comparison: ComparisonRecord) -> dict[str, Any]:
    """Everything of a comparison but its runs, in plain JSON types; ``comparison_from_dict`` reads it back."""
    blocks = [
        {"arm": arm, "pair": pair, **block_to_dict(block)}
        for arm in (0, 1)
        for pair, block in comparison.blocks.of_arm(arm).items()
    ]
    values = {f.name: getattr(comparison, f.name) for f in dataclasses.fields(comparison)}
    return {**values, "run_uids": list(comparison.run_uids), "names": list(comparison.names), "blocks": blocks}


def comparison_from_dict(values: Mapping[str, Any]) -> ComparisonRecord:
    """The comparison that ``comparison_to_dict`` wrote.

    Raises:
        ValueError: a field is missing, unknown or of the wrong kind; the message says which.
    """
    try:
        a, b = values["run_uids"]
        name_a, name_b = values["names"]
        if values["ended_by"] not in (None, *get_args(EndedBy)):
            raise ValueError(f"ended_by is {values['ended_by']!r}; allowed: {', '.join(get_args(EndedBy))}")
        comparison = ComparisonRecord(
            run_uids=(str(a), str(b)),
            names=(str(name_a), str(name_b)),
            floor=float(values["floor"]),
            floor_measured=bool(values["floor_measured"]),
            ended_by=values["ended_by"],
            beside=dict(values["beside"]),
            uid=str(values["uid"]),
            started_at=str(values["started_at"]),
        )
        for block in values["blocks"]:
            if block["arm"] not in (0, 1):
                raise ValueError(f"a block is of arm {block['arm']!r}; allowed: 0, 1")
            comparison.blocks.add(block["arm"], int(block["pair"]), block_from_dict(block))
    except KeyError as error:
        raise ValueError(f"the comparison lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the comparison cannot be read: {error}") from error
    return comparison


def block_to_dict(block: Block) -> dict[str, Any]:
    """A block in plain JSON types; null for what was not measured."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in dataclasses.asdict(block).items()
    }


def block_from_dict(values: Mapping[str, Any]) -> Block:
    """The block that ``block_to_dict`` wrote; what another version measured besides is left out.

    Raises:
        KeyError, TypeError: it is not one.
    """
    known = {f.name for f in dataclasses.fields(Block)}
    found: dict[str, Any] = {
        name: math.nan if value is None else value for name, value in values.items() if name in known
    }
    return Block(**found)
