"""argv -> the window or the command line. Imports neither torch nor Qt itself."""

from __future__ import annotations

import importlib
import sys

WITH_PARSERS_OF_THEIR_OWN = {
    "window-tax": "explorer.gui.window_tax",
    "tour": "explorer.gui.tour",
    "soak": "explorer.gui.soak",
    "generate-bench": "explorer.cli_generate_bench",
    "train-bench": "explorer.cli_train_bench",
    "train-mini": "explorer.engine.train_mini",
}
"""Commands whose modules import Qt or torch, with a ``main(argv) -> int`` each."""


def main(argv: list[str] | None = None) -> int:
    """Run ``argv`` (default: this process's) and return the exit status."""
    args = sys.argv[1:] if argv is None else argv
    # Without a subcommand the window opens; its own options (--in-process, …) begin with a dash.
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
        from explorer.gui.app import main as window

        return window(args)
    if args[0] in WITH_PARSERS_OF_THEIR_OWN:
        return int(importlib.import_module(WITH_PARSERS_OF_THEIR_OWN[args[0]]).main(args[1:]))
    from explorer.cli import main as command_line

    return command_line(args)
