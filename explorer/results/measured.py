"""One comparison of a longer experiment, as it is kept between its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from explorer.results.blocks import Blocks, EndedBy
from explorer.results.comparison_record import block_from_dict, block_to_dict
from explorer.results.sample import NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of two arms."""

    blocks: Blocks
    ended_by: EndedBy
    peak_bytes: tuple[int, int]
    """Of each arm alone: the largest sum of live tensors within a step; -1: not measured."""
    joules_per_token: tuple[float, float] = (NAN, NAN)
    """Of each arm, over whole blocks; NaN: not measured."""
    problem: str | None = None
    """Why it failed."""

    @property
    def done(self) -> bool:
        """Whether it came to its end, so that it is not to be measured again."""
        return self.problem is None and self.ended_by != "stopped"

    @property
    def usable(self) -> bool:
        """Whether there is a ratio."""
        return self.problem is None and self.blocks.interval() is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        arms = [[{"pair": p, **block_to_dict(b)} for p, b in self.blocks.of_arm(arm).items()] for arm in (0, 1)]
        return {
            "blocks": arms,
            "ended_by": self.ended_by,
            "peak_bytes": list(self.peak_bytes),
            "joules_per_token": [None if math.isnan(joules) else joules for joules in self.joules_per_token],
            "problem": self.problem,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measured:
        """Read what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing or of the wrong kind.
        """
        blocks = Blocks()
        try:
            if values["ended_by"] not in get_args(EndedBy):
                raise ValueError(f"ended_by is {values['ended_by']!r}; allowed: {', '.join(get_args(EndedBy))}")
            for arm, kept in enumerate(values["blocks"]):
                for block in kept:
                    blocks.add(arm, block["pair"], block_from_dict(block))
            first, second = values["peak_bytes"]
            # Not told by what was kept before energy was.
            joules = [NAN if one is None else float(one) for one in values.get("joules_per_token", (None, None))]
            return cls(
                blocks=blocks,
                ended_by=values["ended_by"],
                peak_bytes=(first, second),
                joules_per_token=(joules[0], joules[1]),
                problem=values["problem"],
            )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"a comparison cannot be read: {error!r}") from error
