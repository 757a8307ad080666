"""Dense peaks of known cards, as their makers publish them: 16-bit matrix products that add up in float32.

Only cards whose figure was found in public tables, too, stand here; the source is the maker's document that has it.
Figures "with sparsity" are twice these. A slice of a card (MIG) and laptop variants have other names, and no entry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A published figure."""

    tflop_per_s: float
    dtype: str
    source: str


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, 2022, table 2"
_AMPERE = "NVIDIA A100 Tensor Core GPU datasheet, 2021"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, 2023, appendix A"

# By the whole name that torch gives the card, a regular expression: the first that fits counts.
_PUBLISHED: tuple[tuple[str, float, str, str], ...] = (
    (r"NVIDIA H200", 989.5, "bfloat16", "NVIDIA H200 Tensor Core GPU datasheet, 2024"),
    (r"NVIDIA H100 80GB HBM3", 989.4, "bfloat16", _HOPPER),
    (r"NVIDIA A100-(SXM4|PCIE)-\d+GB|NVIDIA A100 80GB PCIe", 312.0, "bfloat16", _AMPERE),
    (r"NVIDIA A40", 149.7, "bfloat16", "NVIDIA A40 datasheet, 2022"),
    (r"NVIDIA A10", 125.0, "bfloat16", "NVIDIA A10 Tensor Core GPU datasheet, 2021"),
    (r"NVIDIA L40S", 362.05, "bfloat16", "NVIDIA L40S datasheet, 2023"),
    (r"NVIDIA L4", 121.0, "bfloat16", "NVIDIA L4 Tensor Core GPU datasheet, 2023"),
    (r"NVIDIA GeForce RTX 4090", 165.2, "bfloat16", _ADA),
)


def published_peak(device_name: str) -> Peak | None:
    """The peak of the card that torch calls ``device_name``, or None where it is not known here."""
    for name, tflop_per_s, dtype, source in _PUBLISHED:
        if re.fullmatch(name, device_name):
            return Peak(tflop_per_s=tflop_per_s, dtype=dtype, source=source)
    return None
