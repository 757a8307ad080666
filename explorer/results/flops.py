"""How much arithmetic a model asks for, and what share of the device's ceiling that is: MFU."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.config import RunConfig
from explorer.models import shape_of
from explorer.results.peaks import published_peak
from explorer.results.sample import NAN, Segment

FORMULA = (
    "6 N + 12 L d T FLOP a token: N parameters (without the position embedding, which is only looked up), L blocks of "
    "width d, T tokens a sequence (attention is counted over the whole T x T matrix, recomputed activations are not)"
)


def flop_per_token(*, parameters: int, layers: int, width: int, seq: int) -> int:
    """Model FLOP of one training step's forward and backward pass, a token.

    Each parameter takes part in one multiplication and one addition forward and in two of each backward: 6 N. The
    products of attention with itself, Q K^T and the weights times V, add 4 d T a block forward and twice that backward.
    A causal kernel that leaves half of the matrix out, or a checkpoint that computes it twice, changes nothing here:
    settings are compared by what the model asks for.

    Args:
        parameters: N, those that are multiplied: the token embedding counts as the output product that it is tied to,
            the position embedding does not.
        layers: L.
        width: d.
        seq: T.
    Source: Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, appendix B; nanoGPT's estimate_mfu.
    """
    return 6 * parameters + 12 * layers * width * seq


def flop_per_token_of(config: RunConfig) -> int | None:
    """``flop_per_token`` of what ``config`` trains, by its model's shape; None in generation and of unknown models."""
    shape = shape_of(config.model) if config.workload == "train" else None
    if shape is None:
        return None
    multiplied = shape.parameters - shape.positions * shape.width
    return flop_per_token(parameters=multiplied, layers=shape.layers, width=shape.width, seq=config.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """Arithmetic done, and the share of a ceiling that it is (1 is all of it). NaN where there is none."""

    tflop_per_s: float = NAN
    measured: float = NAN
    """Of the matrix product that this device was seen to do; see ``engine/ceilings.py``."""
    published: float = NAN
    """Of the dense peak that its maker publishes."""


def utilization(segment: Segment, tokens_per_s: float, device_name: str | None) -> Utilization:
    """What ``tokens_per_s`` comes to in ``segment``."""
    return utilization_of(segment.flop_per_token, tokens_per_s, segment.ceiling_tflop_per_s, device_name)


def utilization_of(
    flop_per_token: float | None, tokens_per_s: float, ceiling_tflop_per_s: float | None, device_name: str | None
) -> Utilization:
    """What ``tokens_per_s`` comes to. The ceiling is that of 16-bit products, whatever the setting's own format: so
    settings compare.
    """
    if flop_per_token is None:
        return Utilization()
    tflop_per_s = flop_per_token * tokens_per_s / 1e12
    peak = None if device_name is None else published_peak(device_name)
    return Utilization(
        tflop_per_s=tflop_per_s,
        measured=tflop_per_s / ceiling_tflop_per_s if ceiling_tflop_per_s else NAN,
        published=NAN if peak is None else tflop_per_s / peak.tflop_per_s,
    )


def in_words(segment: Segment, device_name: str | None) -> str:
    """One line: how MFU is measured here."""
    parts = [FORMULA]
    if segment.ceiling_tflop_per_s:
        parts.append(f"against the product measured on this device, {segment.ceiling_tflop_per_s:.0f} TFLOP/s")
    peak = None if device_name is None else published_peak(device_name)
    if peak is not None:
        parts.append(f"published: {peak.tflop_per_s:g} TFLOP/s dense {peak.dtype} ({peak.source})")
    elif not segment.ceiling_tflop_per_s:
        parts.append("no ceiling of this device is known")
    return "; ".join(parts)
