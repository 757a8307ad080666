"""``python main.py forecast``: how much memory will a training step take, and does it fit?"""

from __future__ import annotations

import argparse
import json
import sys

from explorer.cli_config import config_from
from explorer.config import RunConfig
from explorer.models import shape_of
from explorer.optimizations.forecasting import largest_batch, memory_forecast
from explorer.results.forecast import Forecast

GIB = 2**30
MOST_GIB = 1_000_000
"""More than any device has; a sum in bytes has its limit, too."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options beside those of a configuration."""
    parser.add_argument(
        "--memory-gib", type=float, metavar="GIB", help="what is free for it (default: what is on the device)"
    )
    parser.add_argument("--json", action="store_true", help="print the forecast as JSON")


def run(args: argparse.Namespace) -> int:
    """Forecast; return the exit status: 0, or 1 where it will not fit.

    Raises:
        ValueError: settings that are not allowed, a model whose shape is not known, or generation.
    """
    config = config_from(args)
    shape = shape_of(config.model)
    if shape is None:
        raise ValueError(f"model {config.model}: there is no model of this name, and no folder with its config.json")
    expected = memory_forecast(config, shape)
    free_bytes = _free(config, args.memory_gib)
    largest = None if free_bytes is None else largest_batch(config, shape, free_bytes)
    if args.json:
        sizes = {f"{name}_bytes": size for name, size in expected.parts()}
        sums = {"peak_bytes": expected.peak_bytes, "needed_bytes": expected.needed_bytes, "free_bytes": free_bytes}
        text = json.dumps({"moment": expected.moment, **sizes, **sums, "largest_batch": largest}, indent=2)
    else:
        text = in_words(config, expected, free_bytes, largest)
    sys.stdout.write(text + "\n")
    return int(free_bytes is not None and expected.needed_bytes > free_bytes)


def in_words(config: RunConfig, expected: Forecast, free_bytes: int | None, largest: int | None) -> str:
    """The peak and its parts, and whether it fits."""
    parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in expected.parts())
    lines = [
        f"{config.model}, batch {config.batch}, seq {config.seq}: {expected.peak_bytes / GIB:.2f} GiB in a step, "
        f"{expected.needed_bytes / GIB:.2f} GiB with CUDA's context",
        f"at its fullest ({expected.moment}), GiB: {parts}",
    ]
    if free_bytes is None:
        lines.append("no CUDA device is here to hold it against; give --memory-gib")
    else:
        fits = "fits" if expected.needed_bytes <= free_bytes else "will not fit"
        of = "; not even batch 1 does" if largest == 0 else f"; largest batch that does: {largest}"
        lines.append(f"{fits}: {free_bytes / GIB:.2f} GiB are free{of}")
    return "\n".join(lines)


def against(config: RunConfig, peak_bytes: float) -> str:
    """The forecast beside a measured peak, in brackets; empty where there is none: in generation, or on a CPU."""
    shape = shape_of(config.model)
    if config.workload != "train" or shape is None or config.device == "cpu":
        return ""
    expected_bytes = memory_forecast(config, shape).peak_bytes
    return f" (forecast {expected_bytes / GIB:.2f}, {expected_bytes / peak_bytes - 1:+.1%})"


def _free(config: RunConfig, memory_gib: float | None) -> int | None:
    """What is free, as asked or on the device, in bytes; None on a CPU."""
    if memory_gib is not None:
        if not 0 < memory_gib <= MOST_GIB:
            raise ValueError(f"--memory-gib is {memory_gib}; it must be above 0 and at most {MOST_GIB:,}")
        return int(memory_gib * GIB)
    from explorer.engine.device import environment

    return environment().device(config.device).free_for_a_run_bytes
