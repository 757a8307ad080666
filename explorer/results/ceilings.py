"""What a device was seen to do at best: a large matrix product and a large copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Measured on the device itself; see ``engine/ceilings.py``."""

    product_tflop_per_s: float
    product_size: int
    """n of the n x n x n product."""
    product_dtype: str
    copy_gb_per_s: float
    """Bytes read and bytes written, together, in 1e9 a second."""
    measured_at: str
    """ISO 8601 with offset."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``from_dict`` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ceilings:
        """Read what ``to_dict`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is not that.
        """
        return cls(
            product_tflop_per_s=float(values["product_tflop_per_s"]),
            product_size=int(values["product_size"]),
            product_dtype=str(values["product_dtype"]),
            copy_gb_per_s=float(values["copy_gb_per_s"]),
            measured_at=str(values["measured_at"]),
        )
