"""What the window can be asked for on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from explorer.results.database import default_path


def read(argv: Sequence[str]) -> argparse.Namespace:
    """The options in ``argv``, before which a program's name may stand: ``in_process``, ``settings``, ``store``,
    ``no_store``.

    Raises:
        SystemExit: another was given; standard error has been told which are allowed.
    """
    parser = argparse.ArgumentParser(prog="main.py", description="Opens the window (the command line: main.py --help)")
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="keep the worker on a thread of the window's process (it then loses speed to the window)",
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="remember settings in this file")
    parser.add_argument("--store", type=Path, metavar="FILE", help=f"keep runs in this file (default {default_path()})")
    parser.add_argument("--no-store", action="store_true", help="do not keep runs")
    return parser.parse_args([arg for i, arg in enumerate(argv) if i or arg.startswith("-")])
