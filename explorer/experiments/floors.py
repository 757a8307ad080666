"""Measured A/A floors: made by comparing a configuration with itself, kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from explorer.config import RunConfig
from explorer.engine.cache import cache_dir, write_atomically
from explorer.experiments.against_itself import compare_with_itself
from explorer.experiments.compare import BLOCK_STEPS, Limits
from explorer.experiments.steps import AskedToStop, Steps
from explorer.messages import Compare, Problem
from explorer.results.blocks import Blocks
from explorer.results.environment import Environment
from explorer.results.floor import ASSUMED_FLOOR, AgainstItself, Floor

COMPARISONS_A_BUILD = 5
"""Loading and warming up takes as long as one of them."""
_NO_PART = (
    "device",
    "seed",
    "sample_every",
    "prompt",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "stop",
)
"""Fields of a configuration that a training step's time does not depend on, or that the key has otherwise."""


def floor_key(
    config: RunConfig, here: Environment, *, block_s: float, block_steps: int = BLOCK_STEPS
) -> Mapping[str, Any]:
    """What a floor holds for: this device under these versions, with this configuration and length of blocks.

    Raises:
        ValueError: ``config`` names a device that is not here.
    """
    device = here.device(config.device)
    settings = {name: value for name, value in config.to_dict().items() if name not in _NO_PART}
    versions = {"driver": device.driver, "torch": here.torch, "triton": here.triton}
    key = {"device": device.uuid or device.name, **versions, "config": settings, "block_s": block_s}
    return key if block_steps == BLOCK_STEPS else {**key, "block_steps": block_steps}


def read_floor(key: Mapping[str, Any]) -> Floor:
    """What was measured for ``key`` so far; nothing where the file is not there or cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        if kept["key"] == key:
            return Floor.from_dict(kept["floor"])
    return Floor()


def write_floor(key: Mapping[str, Any], floor: Floor) -> None:
    """Keep ``floor`` for ``key``.

    Raises:
        RuntimeError: the cache folder cannot be written.
    """
    text = json.dumps({"key": key, "floor": floor.to_dict()}, indent=1)
    try:
        write_atomically(_path(key), lambda file: file.write(text.encode()))
    except OSError as error:
        raise RuntimeError(f"the floor could not be kept in {_path(key).parent}: {error.strerror}") from error


def known_floor(
    arms: tuple[RunConfig, ...], here: Environment, *, block_s: float, block_steps: int = BLOCK_STEPS
) -> tuple[float, bool]:
    """The floor of a comparison of ``arms``, and whether it was measured: the larger of what their own are known to be,
    or else what is assumed."""
    floors = [read_floor(floor_key(arm, here, block_s=block_s, block_steps=block_steps)).measured for arm in arms]
    measured = [floor for floor in floors if floor is not None]
    return (max(measured), True) if measured else (ASSUMED_FLOOR, False)


def measure_floor(
    config: RunConfig,
    floor: Floor,
    *,
    delay: float,
    repeats: int,
    block_s: float,
    block_steps: int = BLOCK_STEPS,
    limits: Limits,
    download: bool,
    asked_to_stop: AskedToStop,
    until_s: float = math.inf,
    ids: Iterator[int] | None = None,
    on_pair: Callable[[Blocks], None],
    on_comparison: Callable[[Floor], None],
) -> Steps[Problem | None]:
    """Compare ``config`` with itself until there are ``repeats`` comparisons, those in ``floor`` included.

    ``delay``: where it is not 0, as many comparisons are made whose second arm is delayed by this share of its step
    time. Both kinds share the blocks of the first arm, so that a comparison of each takes three blocks a pair, not
    four. ``on_comparison`` hears ``floor`` with more comparisons each time. ``until_s``: by time.monotonic(); none is
    begun that would end later, judged by the one before. ``ids``: numbers for the arms' runs. The worker must be ready.
    Returns why it ended early, if it failed.

    The arms are built anew for every ``COMPARISONS_A_BUILD`` comparisons; what sets two builds apart, such as where
    their tensors lie, is in each of them in full, since a floor is reckoned from the ratios' distance from 1.
    """
    ids = itertools.count(1) if ids is None else ids
    took_s = 0.0
    while True:
        wanted = [share for share in dict.fromkeys((0.0, delay)) if len(floor.of(share)) < repeats]
        began_s = time.monotonic()
        if not wanted or began_s + took_s > until_s:
            return None
        command = Compare(
            run_ids=(next(ids), next(ids)),
            arms=(config, config),
            block_s=block_s,
            block_steps=block_steps,
            # Another seed each: blocks follow each other in another order.
            seed=min(len(floor.of(share)) for share in wanted),
            delays=tuple(wanted),
            download=download,
        )
        made = 0

        def more(found: Mapping[float, AgainstItself], wanted: Sequence[float] = wanted) -> bool:
            nonlocal floor, made, took_s, began_s
            for share, one in found.items():
                floor = _with(floor, share, one)
            made += 1
            now_s = time.monotonic()
            took_s, began_s = now_s - began_s, now_s
            on_comparison(floor)
            short = all(len(floor.of(share)) < repeats for share in wanted)
            return short and made < COMPARISONS_A_BUILD and now_s + took_s <= until_s

        problem = yield from compare_with_itself(
            command, limits=limits, asked_to_stop=asked_to_stop, on_pair=on_pair, on_comparisons=more
        )
        if problem is not None or asked_to_stop():
            return problem


def _with(floor: Floor, delay: float, one: AgainstItself) -> Floor:
    if not delay:
        return dataclasses.replace(floor, comparisons=(*floor.comparisons, one))
    return dataclasses.replace(floor, delayed={**floor.delayed, delay: (*floor.of(delay), one)})


def _path(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_dir() / "floors" / f"{digest[:24]}.json"
