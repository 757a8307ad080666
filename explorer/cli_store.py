"""Where the command line keeps runs: the options, and the recorder that they ask for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from explorer.experiments.recorder import Recorder
from explorer.results.database import VARIABLE, default_path


def add_store(parser: argparse.ArgumentParser) -> None:
    """``--store``, for a command that reads what is stored."""
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help=f"the file of stored runs (default: ${VARIABLE}, else {default_path()})",
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """``--store`` and ``--no-store``, for a command that measures."""
    add_store(parser)
    parser.add_argument("--no-store", action="store_true", help="do not keep this in the file of stored runs")


def store_path(args: argparse.Namespace) -> Path:
    """The file that ``--store`` names, or the usual one."""
    path: Path | None = args.store
    return path or default_path()


def recorder(args: argparse.Namespace) -> Recorder:
    """What keeps the runs of a command with ``add_recording``; what hinders it is said on standard error."""
    opened = Recorder(None if args.no_store else store_path(args), report=note)
    opened.open()
    return opened


def note(line: str) -> None:
    """Say ``line`` on standard error."""
    sys.stderr.write(f"note: {line}\n")
