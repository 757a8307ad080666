"""What generate-bench and train-bench share: options, and percentiles of times."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def bench_parser(command: str, description: str | None, *, arms: str) -> argparse.ArgumentParser:
    """A parser of what both are asked; ``arms``: what is said of the arms of ours."""
    parser = argparse.ArgumentParser(prog=f"python main.py {command}", description=description)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="arms", action="append", metavar="TOGGLE=LEVEL[,…]", help=arms)
    parser.add_argument("--csv", type=Path, metavar="FILE")
    return parser


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The value that ``percent`` of ``values`` do not exceed, one of them; None where there is none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
