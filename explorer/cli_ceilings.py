"""``python main.py ceilings``: what the devices here can do at best, measured and as published."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from explorer.results.ceilings import Ceilings
from explorer.results.environment import DeviceInfo
from explorer.results.flops import FORMULA
from explorer.results.peaks import published_peak


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--anew", action="store_true", help="measure again what was measured before")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure what is not known yet; return the exit status: 0, or 1 where a device could not be measured."""
    from explorer.engine import ceilings, kept_ceilings
    from explorer.engine.device import environment

    found: list[tuple[DeviceInfo, Ceilings | str]] = []
    failed = False
    for device in environment().devices:
        try:
            known = None if args.anew else kept_ceilings.known(device)
            found.append((device, known or ceilings.measured(device)))
        except ValueError as error:  # a CPU
            found.append((device, str(error)))
        except RuntimeError as error:
            failed = True
            found.append((device, f"not measured: {str(error).splitlines()[0]}"))
    if args.json:
        text = json.dumps({"formula": FORMULA, "devices": [as_dict(*one) for one in found]}, indent=2)
    else:
        text = "\n".join([*(in_words(*one) for one in found), f"MFU: {FORMULA}."])
    sys.stdout.write(text + "\n")
    return int(failed)


def as_dict(device: DeviceInfo, found: Ceilings | str) -> dict[str, Any]:
    """A device, what it was seen to do and what its maker publishes, in plain JSON types."""
    peak = published_peak(device.name)
    return {
        "device": device.id,
        "name": device.name,
        "measured": None if isinstance(found, str) else found.to_dict(),
        "problem": found if isinstance(found, str) else None,
        "published": None
        if peak is None
        else {"tflop_per_s": peak.tflop_per_s, "dtype": peak.dtype, "source": peak.source},
    }


def in_words(device: DeviceInfo, found: Ceilings | str) -> str:
    """The same in a line."""
    peak = published_peak(device.name)
    if isinstance(found, str):
        measured = found
    else:
        share = "" if peak is None else f" ({found.product_tflop_per_s / peak.tflop_per_s:.0%} of what is published)"
        measured = (
            f"{found.product_dtype} product {found.product_size}^3 {found.product_tflop_per_s:.1f} TFLOP/s{share}, "
            f"copy {found.copy_gb_per_s:.0f} GB/s, measured {found.measured_at}"
        )
    published = (
        "; no published peak is known here"
        if peak is None
        else f"; published {peak.tflop_per_s:g} TFLOP/s dense {peak.dtype} ({peak.source})"
    )
    return f"{device.id} {device.name}: {measured}{published if device.kind == 'cuda' else ''}"
