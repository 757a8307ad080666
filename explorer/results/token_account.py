"""A token decoded by this project's kernels, by part of the model: what each took, and what its bytes take at least.

B rows, n slots of the cache that are looked at, L layers, D numbers a token, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["embedding", "qkv", "attend", "project", "up", "down", "norm", "head", "choice", "other"]
"""norm: kernels that add to the residual stream and norm it, where products do not do so themselves; choice: the
likeliest token, put in its place; other: kernels that are not this project's, sampling's above all."""
PARTS: tuple[Part, ...] = get_args(Part)
PRODUCTS: tuple[Part, ...] = ("qkv", "project", "up", "down")
"""Of a layer, in their order."""
_BY_KERNEL: Mapping[str, Part] = {
    "decode_embedding": "embedding",
    "decode_attention": "attend",
    "decode_residual": "norm",
    "decode_choice_parts": "choice",
    "decode_choice": "choice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a device kernel, by the profiler's clock."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What fixes the bytes of a token."""

    rows: int
    slots: int
    """n, the token's own included."""
    layers: int
    width: int
    vocabulary: int
    weight_bytes: int
    """Of one weight that is multiplied."""
    number_bytes: int
    """Of a bias, of a key or value, and of what goes from one product to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAccount:
    """One token in microseconds. Parts that have no kernel and no bytes are left out."""

    token_us: float
    """From token to token, without the profiler."""
    part_us: Mapping[Part, float]
    """Of the time in which kernels ran, each part's own; together less than ``token_us`` but for what tracing adds."""
    part_bytes: Mapping[Part, int]
    copy_gb_per_s: float | None
    """What a large copy reads and writes here; None: not measured."""

    @property
    def gaps_us(self) -> float:
        """Time in which none of the parts ran."""
        return max(0.0, self.token_us - sum(self.part_us.values()))

    def limit_us(self, part: Part | None = None) -> float | None:
        """The least that the bytes of ``part``, or of all, take; None where no ceiling is known."""
        if self.copy_gb_per_s is None:
            return None
        count = sum(self.part_bytes.values()) if part is None else self.part_bytes.get(part, 0)
        return count / self.copy_gb_per_s / 1e3

    @property
    def bound_by(self) -> str:
        """Which of three takes most of the token: moving bytes, kernels beyond that, or the gaps between them."""
        limit_us = self.limit_us()
        if limit_us is None:
            return "no copy was measured here, so what bounds it is not known"
        beyond = {p: us - (self.limit_us(p) or 0.0) for p, us in self.part_us.items()}
        latency_us = max(0.0, sum(self.part_us.values()) - limit_us)
        shares = f"bytes {limit_us:.1f} us, kernels beyond that {latency_us:.1f}, gaps {self.gaps_us:.1f}"
        if limit_us >= max(latency_us, self.gaps_us):
            return f"bound by bandwidth: {shares}"
        if self.gaps_us > latency_us:
            return f"bound by launches: {shares}"
        worst = sorted(beyond, key=lambda part: -beyond[part])[:3]
        most = ", ".join(f"{part} {beyond[part]:.1f}" for part in worst)
        return f"bound by latency, kernel after kernel: {shares}; furthest beyond their bytes: {most}"


def part_us(executions: Sequence[Execution], *, layers: int, tokens: int) -> dict[Part, float]:
    """Microseconds a token by part; empty where this project's kernels did not decode.

    A kernel that begins before the one ahead has ended mostly waits for it, so that its own time is what it ends later:
    these times add up to that in which any kernel ran. Products are told apart by their order within the token.
    """
    if not any(one.name == "decode_linear" for one in executions):
        return {}
    found: dict[Part, float] = {}
    products, ended_us = 0, float("-inf")
    for one in sorted(executions, key=lambda one: one.start_us):
        if one.name == "decode_embedding":
            products = 0
        part = _BY_KERNEL.get(one.name, "other")
        if one.name == "decode_linear":
            part = PRODUCTS[products % len(PRODUCTS)] if products < len(PRODUCTS) * layers else "head"
            products += 1
        found[part] = found.get(part, 0.0) + max(0.0, one.end_us - max(one.start_us, ended_us))
        ended_us = max(ended_us, one.end_us)
    return {part: found[part] / tokens for part in PARTS if part in found}


def part_bytes(work: Work) -> dict[Part, int]:
    """Bytes that each part reads and writes at least: weights once, keys and values once, and what goes from part to
    part once each way. The residual stream and the logits are in float32."""
    rows, d, e = work.rows, work.width, work.number_bytes

    def product(outputs: int, inputs: int, *, bias: bool = True) -> int:
        beside = outputs * e * (bias + (work.weight_bytes == 1))  # an int8 output has a scale
        return outputs * inputs * work.weight_bytes + beside

    several = rows > 1
    stream_in = rows * d * (e if several else 4)  # normed before, or by the product
    added = rows * d * (4 if several else 8)  # to be added, or added to the stream
    found: dict[Part, int] = {
        "embedding": rows * d * (work.weight_bytes + e + 4),
        "qkv": work.layers * (product(3 * d, d) + stream_in + 3 * rows * d * e),
        "attend": work.layers * rows * d * e * (2 * work.slots + 2),
        "project": work.layers * (product(d, d) + rows * d * e + added),
        "up": work.layers * (product(4 * d, d) + stream_in + 4 * rows * d * e),
        "down": work.layers * (product(d, 4 * d) + 4 * rows * d * e + added),
        "head": product(work.vocabulary, d, bias=False) + stream_in + 4 * rows * work.vocabulary,
        "choice": 4 * rows * work.vocabulary,
    }
    if several:
        found["norm"] = rows * d * (4 + e) + 2 * work.layers * rows * d * (12 + e)
    return {part: found[part] for part in PARTS if part in found}


def in_words(account: TokenAccount) -> str:
    """A line a part, the gaps, the whole, and what bounds it."""
    total_us, limit_us = sum(account.part_us.values()) + account.gaps_us, account.limit_us()
    lines = [f"{'part':<12}{'us':>8}{'MB':>9}{'limit us':>10}{'x limit':>9}"]
    for part in (part for part in PARTS if part in account.part_us):
        count = account.part_bytes.get(part)
        lines.append(_line(part, account.part_us[part], count, account.limit_us(part) if count else None))
    lines.append(_line("gaps", account.gaps_us, None, None))
    lines.append(_line("all", total_us, sum(account.part_bytes.values()), limit_us))
    return "\n".join([*lines, account.bound_by]) + "\n"


def _line(name: str, us: float, count: int | None, limit_us: float | None) -> str:
    told = f"{name:<12}{us:>8.2f}" + ("" if count is None else f"{count / 1e6:>9.2f}")
    return told if limit_us is None else f"{told}{limit_us:>10.2f}{us / limit_us:>9.1f}"
