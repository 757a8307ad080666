"""``python main.py export-model``: a model as one file for serving, checked against the model."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from explorer.cli_screen import ProgressLine
from explorer.config import RunConfig, Weights
from explorer.ctrl_c import ctrl_c_asks
from explorer.engine.isolation import open_worker
from explorer.experiments.export_model import export_model
from explorer.experiments.steps import Steps, drive, ready
from explorer.messages import Export, Exported, Problem
from explorer.models import MODELS
from explorer.results.atomic import check_target


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help=f"a folder saved by transformers or --save, or {', '.join(MODELS)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="FILE.pt2 for torch.export.load, FILE.onnx for ONNX runtimes",
    )
    parser.add_argument("--download", action="store_true", help="allow fetching weights from the network")
    parser.add_argument("--in-process", action="store_true", help="run the worker on a thread of this process")


def run(args: argparse.Namespace) -> int:
    """Export and return the exit status: 0, 1 failed, 2 wrong request, 130 ended by Ctrl-C.

    Raises:
        ValueError: settings that are not allowed, or a target that cannot be written.
    """
    check_target(args.out)
    weights: Weights = "bundled" if args.model == "mini" else "pretrained"
    config = RunConfig(workload="generate", model=args.model, weights=weights, device="cpu", batch=1)
    command = Export(run_id=1, config=config, target=str(args.out.absolute()), download=args.download)
    line = ProgressLine()
    with ctrl_c_asks() as asked_to_stop:

        def steps() -> Steps[Exported | Problem | None]:
            yield from ready(asked_to_stop=asked_to_stop)
            return (yield from export_model(command, asked_to_stop=asked_to_stop))

        try:
            found = drive(partial(open_worker, in_process=args.in_process), steps(), line.show_event)
        finally:
            line.clear()
    match found:
        case None:
            return 130
        case Problem():
            sys.stderr.write(f"error: {found}\n")
            return 2 if found.bad_request else 1
        case Exported():
            sys.stdout.write(
                f"{args.out}: {found.size_bytes / 2**20:.1f} MiB; its logits are within {found.largest_error:.1e} of "
                "the model's, no more than float32 rounds\n"
            )
            return 0
