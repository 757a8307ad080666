"""Optimized against reference: the same work in float32, on torch's own path and as asked for, to numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from explorer.config import RunConfig
from explorer.engine.generation import GenerationLoop
from explorer.engine.numerics import Numerics, exact_generation, exact_training, of_generation, of_training
from explorer.engine.reporting import Report
from explorer.engine.session import Session, check
from explorer.optimizations import registry
from explorer.optimizations.references import plain_float32, torchs_own
from explorer.results.environment import DeviceInfo
from explorer.results.parity import Key, Parity, first_difference, judge

STEPS = 20
NEW_TOKENS = 64

Known = dict[tuple[RunConfig, int | Literal["exact"]], Numerics]
"""Numbers of arms by configuration and steps: configurations that are checked in turn share their reference."""


def parity(
    config: RunConfig,
    device: DeviceInfo,
    *,
    steps: int = STEPS,
    download: bool = False,
    report: Report,
    cancelled: Callable[[], bool],
    known: Known | None = None,
) -> Parity:
    """``config`` on ``device`` against float32 without toggles, and against torch's own path in its precision.

    Dropout is off in all arms, since its draws differ between kernels. One model at a time is on the device;
    of each arm a gradient and one sequence's logits wait in host memory. Where the device's does not suffice (the
    reference takes the most), all run with half the batch, or less.

    Args:
        steps: of training. Generation writes ``NEW_TOKENS``, or as many as the model's context has room for.
        known: filled with the numbers of reference and yardstick, and asked for them first.
    Raises:
        BadRequest: the configuration cannot run here.
        Cancelled: ``cancelled`` came true.
    """
    known = {} if known is None else known
    while True:
        try:
            return _parity(config, device, steps, download, report, cancelled, known)
        except torch.OutOfMemoryError:
            if config.batch == 1:
                raise
        # Here, and not above, the error and with it its frames' tensors are gone.
        config = dataclasses.replace(config, batch=config.batch // 2)
        report(f"parity: out of memory; trying batch {config.batch}", None, None, "")


def _parity(
    config: RunConfig,
    device: DeviceInfo,
    steps: int,
    download: bool,
    report: Report,
    cancelled: Callable[[], bool],
    known: Known,
) -> Parity:
    def run(arm: str, config: RunConfig, along: tuple[int, ...] | None = None) -> Numerics:
        def say(activity: str, done: float | None, total: float | None, unit: str) -> None:
            report(f"parity, {arm}: {activity}", done, total, unit)

        with Session(config, device, download=download, report=say, cancelled=cancelled) as session:
            if config.workload == "train":
                session.begin_segment(0)
                return of_training(session, steps, say, cancelled)
            assert isinstance(session.loop, GenerationLoop)
            room = session.run.model.config.n_positions - session.loop.tokens.shape[1]
            session.change_to(dataclasses.replace(session.config, max_new_tokens=min(NEW_TOKENS, room)))
            session.begin_segment(0)
            return of_generation(session, along, say, cancelled)

    def once(arm: str, config: RunConfig, along: tuple[int, ...] | None = None) -> Numerics:
        if (config, steps) not in known:
            known[config, steps] = run(arm, config, along)
        return known[config, steps]

    def exact(config: RunConfig, reference: Numerics) -> Numerics:
        if (config, "exact") not in known:
            with Session(config, device, download=download, report=report, cancelled=cancelled) as session:
                session.begin_segment(0)
                report("parity, float64: the first pass once more", None, None, "")
                known[config, "exact"] = (
                    exact_training(session, cancelled)
                    if config.workload == "train"
                    else exact_generation(session, reference.tokens)
                )
        return known[config, "exact"]

    plain = plain_float32(config)
    asked = dataclasses.replace(plain, levels=registry.with_level(config, "dropout", "off").levels)
    check(asked, device)
    reference = once("float32", plain)
    own = torchs_own(asked, reference.activation)
    yardstick = once("torch's own path", own, reference.tokens)
    found = yardstick if asked == own else run("as asked", asked, reference.tokens)
    # In 16 bits torch's own path alone says what rounding does.
    in_float32 = own.level("precision") is own.level("weight_dtype") is None
    losses = reference.arm.losses
    return Parity(
        measures=judge(
            errors(reference, found),
            errors(reference, yardstick),
            descent=1 - min(losses) / max(losses) if losses else 0.0,
            rounding=errors(exact(plain, reference), reference) if in_float32 else None,
        ),
        reference=reference.arm,
        yardstick=yardstick.arm,
        asked=found.arm,
        batch=config.batch,
        logits_max_abs=_finite(float((found.logits - reference.logits).abs().max())),
        new_tokens=len(reference.tokens),
        first_divergence=first_difference(reference.tokens, found.tokens),
    )


def errors(reference: Numerics, other: Numerics) -> dict[Key, float]:
    """How far ``other`` lies from ``reference``; ``results.parity.Kind`` says what each number is."""
    found: dict[Key, float] = {("logits", ""): _error(other.logits, reference.logits)}
    largest = (other.logits - reference.logits).abs().max() / reference.logits.abs().max()
    found["largest logit", ""] = _finite(float(largest))
    if reference.text_logits is not None and other.text_logits is not None:
        found["text", ""] = _error(other.text_logits, reference.text_logits)
    for name, block in reference.blocks.items():
        found["block", name] = _error(other.blocks[name], block)
    losses = list(zip(reference.arm.losses, other.arm.losses, strict=False))
    if losses:
        found["loss", ""] = max(abs(loss - exact) / abs(exact) for exact, loss in losses)
    if reference.gradients and other.gradients:
        by_name = {n: _products(other.gradients[n], exact) for n, exact in reference.gradients.items()}
        whole = torch.stack(list(by_name.values())).sum(dim=0)
        for name, products in {"": whole, **by_name}.items():
            found["gradient", name], found["direction", name] = _error_and_angle(products)
    return found


def _products(value: Tensor, exact: Tensor) -> Tensor:
    """d.d, d.e and e.e in float64, for ``exact`` e and the difference d of ``value`` from it."""
    exact = exact.double().flatten()
    difference = value.double().flatten() - exact
    return torch.stack([difference @ difference, difference @ exact, exact @ exact])


def _error_and_angle(products: Tensor) -> tuple[float, float]:
    """|d| / |e|, and the angle between e and e + d in radians. From the part of d across e, and not from the cosine,
    which for small angles is 1 to the last digit."""
    dd, de, ee = products.tolist()
    if not math.isfinite(dd):
        return math.inf, math.inf
    if ee == 0:
        return (0.0, 0.0) if dd == 0 else (math.inf, math.pi / 2)
    across = math.sqrt(max(0.0, dd - de * de / ee))
    return math.sqrt(dd / ee), math.atan2(across, (ee + de) / math.sqrt(ee))


def _error(value: Tensor, exact: Tensor) -> float:
    return _error_and_angle(_products(value, exact))[0]


def _finite(value: float) -> float:
    """A number that is not one is as far off as can be."""
    return value if math.isfinite(value) else math.inf
